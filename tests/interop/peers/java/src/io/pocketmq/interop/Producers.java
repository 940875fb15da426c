package io.pocketmq.interop;

import com.google.gson.JsonObject;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;

/** Everything a producer can do, by name of the producer. */
final class Producers {
    private final Map<String, DefaultMQProducer> producers = new ConcurrentHashMap<>();
    private volatile boolean stopFloods;

    void register(Lines lines) {
        lines.on("producer", this::start);
        lines.on("send", this::send);
        lines.on("transaction", this::transaction);
        lines.on("request", this::request);
        lines.on("flood", this::flood);
        lines.on("stop_floods", in -> stopFloods = true);
        lines.on("publish_queues", in -> Messages.writeQueues(
                producer(in).fetchPublishMessageQueues(in.get("topic").getAsString())));
        lines.on("view", in -> Messages.write(
                producer(in).viewMessage(in.get("topic").getAsString(), in.get("msg_id").getAsString())));
        lines.on("query_key", this::queryKey);
        lines.on("queue_numbers", this::queueNumbers);
        lines.on("search_offset", in ->
                producer(in).searchOffset(Messages.queue(in), in.get("ms").getAsLong()));
        lines.on("create_topic", this::createTopic);
        lines.on("recall", in -> call(producer(in), "recallMessage", in.get("topic").getAsString(),
                in.get("handle").getAsString()));
    }

    /** Calls what only a newer client has; throws what it throws. */
    private static Object call(DefaultMQProducer producer, String method, String first, String second)
            throws Exception {
        try {
            return producer.getClass().getMethod(method, String.class, String.class).invoke(producer, first, second);
        } catch (InvocationTargetException thrown) {
            if (thrown.getCause() instanceof Exception) {
                throw (Exception) thrown.getCause();
            }
            throw thrown;
        }
    }

    DefaultMQProducer producer(JsonObject in) {
        String name = in.get("producer").getAsString();
        DefaultMQProducer producer = producers.get(name);
        if (producer == null) {
            throw new IllegalArgumentException("no producer is called " + name);
        }
        return producer;
    }

    boolean shutdown(String name) {
        DefaultMQProducer producer = producers.remove(name);
        if (producer != null) {
            producer.shutdown();
        }
        return producer != null;
    }

    static RPCHook acl(JsonObject in) {
        return Arguments.has(in, "access_key")
                ? new AclClientRPCHook(new SessionCredentials(
                        in.get("access_key").getAsString(), in.get("secret_key").getAsString()))
                : null;
    }

    private Object start(JsonObject in) throws Exception {
        String name = in.get("name").getAsString();
        String group = in.get("group").getAsString();
        DefaultMQProducer producer;
        if (Arguments.flag(in, "transactional")) {
            TransactionMQProducer transactional = new TransactionMQProducer(group, acl(in));
            transactional.setTransactionListener(new ByProperty(name));
            producer = transactional;
        } else if (Arguments.flag(in, "trace")) {
            producer = new DefaultMQProducer(group, acl(in), true, null);
        } else {
            producer = new DefaultMQProducer(group, acl(in));
        }
        producer.setNamesrvAddr(in.get("namesrv").getAsString());
        producer.setInstanceName(Arguments.text(in, "instance", name));
        producer.setSendMsgTimeout(10_000);
        Arguments.set(producer, in.getAsJsonObject("set"));
        producer.start();
        producers.put(name, producer);
        return producer.buildMQClientId();
    }

    private Object send(JsonObject in) throws Exception {
        DefaultMQProducer producer = producer(in);
        List<Message> messages = Messages.readAll(in);
        switch (Arguments.text(in, "mode", "sync")) {
            case "sync":
                return sendSync(producer, messages, in);
            case "async":
                return sendAsync(producer, messages);
            case "oneway":
                for (Message each : messages) {
                    producer.sendOneway(each);
                }
                return null;
            case "batch":
                return List.of(Messages.write(producer.send(messages)));
            default:
                throw new IllegalArgumentException("mode is sync, async, oneway or batch");
        }
    }

    /** "queue" picks one queue by its id; "shard" picks by its hash, as an ordered producer does. */
    private List<Object> sendSync(DefaultMQProducer producer, List<Message> messages, JsonObject in)
            throws Exception {
        List<Object> results = new ArrayList<>();
        for (Message each : messages) {
            SendResult result;
            if (Arguments.has(in, "queue")) {
                int queue = in.get("queue").getAsInt();
                result = producer.send(each, (queues, message, wanted) -> byId(queues, (Integer) wanted), queue);
            } else if (Arguments.has(in, "shard")) {
                String shard = in.get("shard").getAsString();
                result = producer.send(each,
                        (queues, message, key) -> queues.get(Math.floorMod(key.hashCode(), queues.size())), shard);
            } else {
                result = producer.send(each);
            }
            results.add(Messages.write(result));
        }
        return results;
    }

    private static MessageQueue byId(List<MessageQueue> queues, int queue) {
        return queues.stream().filter(each -> each.getQueueId() == queue).findFirst().orElseThrow();
    }

    private static Object sendAsync(DefaultMQProducer producer, List<Message> messages) throws Exception {
        Object[] results = new Object[messages.size()];
        CountDownLatch open = new CountDownLatch(messages.size());
        for (int i = 0; i < messages.size(); i++) {
            int at = i;
            producer.send(messages.get(i), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    results[at] = Messages.write(result);
                    open.countDown();
                }

                @Override
                public void onException(Throwable failure) {
                    results[at] = Map.of("error", Lines.error(failure));
                    open.countDown();
                }
            });
        }
        if (!open.await(60, TimeUnit.SECONDS)) {
            throw new IllegalStateException(open.getCount() + " callbacks did not come within 60 s");
        }
        return Arrays.asList(results);
    }

    /** Each message's user property "local" (COMMIT, ROLLBACK, UNKNOW) decides at once, "check" when the broker asks. */
    private Object transaction(JsonObject in) throws Exception {
        List<Object> results = new ArrayList<>();
        for (Message each : Messages.readAll(in)) {
            TransactionSendResult result =
                    ((TransactionMQProducer) producer(in)).sendMessageInTransaction(each, null);
            Map<String, Object> out = Messages.write(result);
            out.put("state", result.getLocalTransactionState().name());
            results.add(out);
        }
        return results;
    }

    private static final class ByProperty implements TransactionListener {
        private final String producer;

        ByProperty(String producer) {
            this.producer = producer;
        }

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return state(message.getUserProperty("local"));
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            JsonObject event = new JsonObject();
            event.addProperty("event", "check");
            event.addProperty("producer", producer);
            event.add("message", Lines.GSON.toJsonTree(Messages.write(message)));
            Lines.event(event);
            return state(message.getUserProperty("check"));
        }

        private static LocalTransactionState state(String word) {
            if ("COMMIT".equals(word)) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }
            return "ROLLBACK".equals(word) ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.UNKNOW;
        }
    }

    private Object request(JsonObject in) throws Exception {
        return Messages.write(producer(in).request(
                Messages.read(in.getAsJsonObject("message")), Arguments.big(in, "timeout_ms", 10_000)));
    }

    /**
     * Sends "count" messages one after the other, body = "PREFIX-N" padded to "size", an event for each that was acknowledged;
     * goes on after failures until "stop_floods". Returns how many were acknowledged and how many failed.
     */
    private Object flood(JsonObject in) throws Exception {
        DefaultMQProducer producer = producer(in);
        String topic = in.get("topic").getAsString();
        String prefix = Arguments.text(in, "prefix", "flood");
        int count = Arguments.number(in, "count", Integer.MAX_VALUE);
        int size = Arguments.number(in, "size", 64);
        boolean quiet = Arguments.flag(in, "quiet");
        stopFloods = false;
        int acknowledged = 0;
        int failed = 0;
        for (int i = 0; i < count && !stopFloods; i++) {
            String body = prefix + "-" + i;
            Message message = new Message(topic, Arguments.text(in, "tags", null), body,
                    Arrays.copyOf(body.getBytes(StandardCharsets.UTF_8), Math.max(size, body.length())));
            try {
                SendResult result = producer.send(message);
                acknowledged++;
                if (!quiet) {
                    JsonObject event = new JsonObject();
                    event.addProperty("event", "ack");
                    event.addProperty("producer", in.get("producer").getAsString());
                    event.addProperty("body", body);
                    event.add("result", Lines.GSON.toJsonTree(Messages.write(result)));
                    Lines.event(event);
                }
            } catch (Exception refused) {
                failed++;
                TimeUnit.MILLISECONDS.sleep(20);
            }
        }
        return Map.of("acknowledged", acknowledged, "failed", failed);
    }

    private Object queryKey(JsonObject in) throws Exception {
        QueryResult result = producer(in).queryMessage(
                in.get("topic").getAsString(), in.get("key").getAsString(), Arguments.number(in, "count", 32),
                Arguments.big(in, "begin_ms", 0), Arguments.big(in, "end_ms", System.currentTimeMillis() + 60_000));
        return Messages.writeAll(result.getMessageList());
    }

    private Object queueNumbers(JsonObject in) throws Exception {
        DefaultMQProducer producer = producer(in);
        MessageQueue queue = Messages.queue(in);
        Map<String, Object> out = new LinkedHashMap<>();
        out.put("min", producer.minOffset(queue));
        out.put("max", producer.maxOffset(queue));
        out.put("earliest_ms", producer.earliestMsgStoreTime(queue));
        return out;
    }

    /** The call has other parameters in 5.x, hence by reflection. */
    private Object createTopic(JsonObject in) throws Exception {
        DefaultMQProducer producer = producer(in);
        String key = Arguments.text(in, "key", "TBW102");
        String topic = in.get("topic").getAsString();
        int queues = Arguments.number(in, "queues", 4);
        try {
            producer.getClass().getMethod("createTopic", String.class, String.class, int.class)
                    .invoke(producer, key, topic, queues);
        } catch (NoSuchMethodException five) {
            producer.getClass().getMethod("createTopic", String.class, String.class, int.class, Map.class)
                    .invoke(producer, key, topic, queues, Map.of());
        }
        return null;
    }
}
