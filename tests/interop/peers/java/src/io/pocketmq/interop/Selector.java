package io.pocketmq.interop;

import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.util.BitsArray;
import org.apache.rocketmq.filter.util.BloomFilter;

/**
 * RocketMQ's own SQL92 evaluator and Bloom filter, asked in bulk.
 *
 * <p>{"do": "evaluate", "cases": [{"expression", "messages": [{name: value}]}]} answers for each case {"error": text} or
 * {"results": ["true" | "false" | "null" | "!" + exception class, ...]}. {"do": "bloom", "rate", "consumers", "names"}
 * answers {"k", "m", "positions", "bytes"}: the bytes of a map with every name's bits set, as integers.
 */
public final class Selector {
    private Selector() {}

    public static void main(String[] arguments) throws Exception {
        Lines lines = new Lines();
        lines.on("evaluate", Selector::evaluate);
        lines.on("bloom", Selector::bloom);
        lines.serve();
    }

    private static final class Case {
        String expression;
        List<Map<String, String>> messages;
    }

    private static final class Properties implements EvaluationContext {
        private final Map<String, String> values;

        Properties(Map<String, String> values) {
            this.values = values;
        }

        @Override
        public Object get(String name) {
            return values.get(name);
        }

        @Override
        public Map<String, Object> keyValues() {
            return new LinkedHashMap<>(values);
        }
    }

    private static Object evaluate(JsonObject in) {
        List<Object> answers = new ArrayList<>();
        for (Case each : Lines.GSON.fromJson(in.get("cases"), Case[].class)) {
            Map<String, Object> answer = new LinkedHashMap<>();
            answers.add(answer);
            Expression expression;
            try {
                expression = FilterFactory.INSTANCE.get("SQL92").compile(each.expression);
            } catch (Throwable failure) {
                answer.put("error", String.valueOf(failure.getMessage()));
                continue;
            }
            List<String> results = new ArrayList<>();
            for (Map<String, String> message : each.messages) {
                results.add(result(expression, message));
            }
            answer.put("results", results);
        }
        return answers;
    }

    private static String result(Expression expression, Map<String, String> message) {
        try {
            return String.valueOf(expression.evaluate(new Properties(message)));
        } catch (Throwable failure) {
            return "!" + failure.getClass().getSimpleName();
        }
    }

    private static Object bloom(JsonObject in) {
        BloomFilter filter = BloomFilter.createByFn(in.get("rate").getAsInt(), in.get("consumers").getAsInt());
        BitsArray bits = BitsArray.create(filter.getM());
        List<int[]> positions = new ArrayList<>();
        for (String name : Lines.GSON.fromJson(in.get("names"), String[].class)) {
            positions.add(filter.calcBitPositions(name));
            filter.hashTo(name, bits);
        }
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("k", filter.getK());
        answer.put("m", filter.getM());
        answer.put("positions", positions);
        List<Integer> bytes = new ArrayList<>();
        for (byte each : bits.bytes()) {
            bytes.add(each & 0xFF);
        }
        answer.put("bytes", bytes);
        return answer;
    }
}
