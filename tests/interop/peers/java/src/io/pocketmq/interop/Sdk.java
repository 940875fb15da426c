package io.pocketmq.interop;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.io.Closeable;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientConfigurationBuilder;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.ProducerBuilder;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/** The SDK of RocketMQ 5, rocketmq-client-java; the commands are those of tests/interop/sdks.py. */
public final class Sdk {
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private final Map<String, Closeable> clients = new ConcurrentHashMap<>();
    private final Map<Integer, MessageView> received = new ConcurrentHashMap<>();
    private final AtomicInteger numbers = new AtomicInteger();
    private final CountDownLatch released = new CountDownLatch(1);

    public static void main(String[] arguments) throws Exception {
        Sdk sdk = new Sdk();
        Lines lines = new Lines();
        lines.on("producer", sdk::producer);
        lines.on("send", sdk::send);
        lines.on("recall", in -> sdk.producerOf(in).recallMessage(text(in, "topic"), text(in, "handle"))
                .getMessageId().toString());
        lines.on("simple", sdk::simple);
        lines.on("receive", sdk::receive);
        lines.on("ack", in -> {
            sdk.consumerOf(in).ack(sdk.received.get(in.get("position").getAsInt()));
            return null;
        });
        lines.on("change", in -> {
            sdk.consumerOf(in).changeInvisibleDuration(
                    sdk.received.get(in.get("position").getAsInt()), millis(in, "invisible_ms"));
            return null;
        });
        lines.on("push", sdk::push);
        lines.on("release", in -> {
            sdk.released.countDown();
            return null;
        });
        lines.on("shutdown", in -> {
            Closeable client = sdk.clients.remove(text(in, "name"));
            if (client != null) {
                client.close();
            }
            return client != null;
        });
        lines.serve();
    }

    private Object producer(JsonObject in) throws Exception {
        String name = text(in, "name");
        ProducerBuilder builder = PROVIDER.newProducerBuilder()
                .setClientConfiguration(configuration(in))
                .setTransactionChecker(view -> {
                    event("check", "producer", name, view, true);
                    return TransactionResolution.valueOf(view.getProperties().getOrDefault("check", "COMMIT"));
                });
        for (JsonElement topic : in.getAsJsonArray("topics")) {
            builder.setTopics(topic.getAsString());
        }
        if (in.has("attempts")) {
            builder.setMaxAttempts(in.get("attempts").getAsInt());
        }
        clients.put(name, builder.build());
        return null;
    }

    private Object send(JsonObject in) throws Exception {
        Producer producer = producerOf(in);
        List<JsonObject> results = new ArrayList<>();
        for (JsonElement each : in.getAsJsonArray("messages")) {
            JsonObject given = each.getAsJsonObject();
            Message message = message(given);
            SendReceipt receipt;
            if (given.has("end")) {
                Transaction transaction = producer.beginTransaction();
                receipt = producer.send(message, transaction);
                if (text(given, "end").equals("COMMIT")) {
                    transaction.commit();
                } else if (text(given, "end").equals("ROLLBACK")) {
                    transaction.rollback();
                }
            } else {
                receipt = producer.send(message);
            }
            JsonObject result = new JsonObject();
            result.addProperty("msg_id", receipt.getMessageId().toString());
            result.addProperty("recall_handle", receipt.getRecallHandle());
            results.add(result);
        }
        return results;
    }

    private Object simple(JsonObject in) throws Exception {
        clients.put(text(in, "name"), PROVIDER.newSimpleConsumerBuilder()
                .setClientConfiguration(configuration(in))
                .setConsumerGroup(text(in, "group"))
                .setSubscriptionExpressions(subscriptions(in))
                .setAwaitDuration(millis(in, "await_ms"))
                .build());
        return null;
    }

    private Object receive(JsonObject in) throws Exception {
        List<JsonObject> found = new ArrayList<>();
        for (MessageView view : consumerOf(in).receive(in.get("count").getAsInt(), millis(in, "invisible_ms"))) {
            JsonObject made = json(view);
            int number = numbers.incrementAndGet();
            made.addProperty("position", number);
            received.put(number, view);
            found.add(made);
        }
        return found;
    }

    private Object push(JsonObject in) throws Exception {
        String name = text(in, "name");
        clients.put(name, PROVIDER.newPushConsumerBuilder()
                .setClientConfiguration(configuration(in))
                .setConsumerGroup(text(in, "group"))
                .setSubscriptionExpressions(subscriptions(in))
                .setMessageListener(view -> {
                    Map<String, String> properties = view.getProperties();
                    boolean success =
                            view.getDeliveryAttempt() > Integer.parseInt(properties.getOrDefault("fail_times", "0"));
                    event("message", "consumer", name, view, success);
                    if (properties.containsKey("hold")) {
                        try {
                            released.await();
                        } catch (InterruptedException interrupted) {
                            return ConsumeResult.FAILURE;
                        }
                    }
                    return success ? ConsumeResult.SUCCESS : ConsumeResult.FAILURE;
                })
                .build());
        return null;
    }

    private Producer producerOf(JsonObject in) {
        return (Producer) clients.get(text(in, "producer"));
    }

    private SimpleConsumer consumerOf(JsonObject in) {
        return (SimpleConsumer) clients.get(text(in, "consumer"));
    }

    private static ClientConfiguration configuration(JsonObject in) {
        ClientConfigurationBuilder builder = ClientConfiguration.newBuilder()
                .setEndpoints(text(in, "endpoint"))
                .enableSsl(in.has("tls"));
        if (in.has("key")) {
            builder.setCredentialProvider(new StaticSessionCredentialsProvider(text(in, "key"), text(in, "secret")));
        }
        return builder.build();
    }

    private static Map<String, FilterExpression> subscriptions(JsonObject in) {
        Map<String, FilterExpression> made = new HashMap<>();
        for (JsonElement each : in.getAsJsonArray("subscriptions")) {
            JsonObject given = each.getAsJsonObject();
            FilterExpressionType type = given.has("sql") ? FilterExpressionType.SQL92 : FilterExpressionType.TAG;
            made.put(text(given, "topic"), new FilterExpression(text(given, "expression"), type));
        }
        return made;
    }

    private static Message message(JsonObject given) {
        MessageBuilder builder = PROVIDER.newMessageBuilder()
                .setTopic(text(given, "topic"))
                .setBody(text(given, "body").getBytes(StandardCharsets.UTF_8));
        if (given.has("tag")) {
            builder.setTag(text(given, "tag"));
        }
        if (given.has("key")) {
            builder.setKeys(text(given, "key"));
        }
        if (given.has("shard")) {
            builder.setMessageGroup(text(given, "shard"));
        }
        if (given.has("delay_ms")) {
            builder.setDeliveryTimestamp(System.currentTimeMillis() + given.get("delay_ms").getAsLong());
        }
        if (given.has("properties")) {
            given.getAsJsonObject("properties").entrySet()
                    .forEach(each -> builder.addProperty(each.getKey(), each.getValue().getAsString()));
        }
        return builder.build();
    }

    private static void event(String event, String kind, String name, MessageView view, boolean success) {
        JsonObject said = new JsonObject();
        said.addProperty("event", event);
        said.addProperty(kind, name);
        said.addProperty("success", success);
        said.add("message", json(view));
        Lines.event(said);
    }

    private static JsonObject json(MessageView view) {
        ByteBuffer buffer = view.getBody();
        byte[] body = new byte[buffer.remaining()];
        buffer.get(body);
        Map<String, String> properties = new HashMap<>(view.getProperties());
        view.getTag().ifPresent(tag -> properties.put("TAGS", tag));
        view.getMessageGroup().ifPresent(group -> properties.put("__SHARDINGKEY", group));
        if (!view.getKeys().isEmpty()) {
            properties.put("KEYS", String.join(" ", view.getKeys()));
        }
        JsonObject made = new JsonObject();
        made.addProperty("topic", view.getTopic());
        made.addProperty("body64", Base64.getEncoder().encodeToString(body));
        made.addProperty("msg_id", view.getMessageId().toString());
        made.addProperty("reconsume_times", view.getDeliveryAttempt() - 1);
        made.addProperty("born_ms", view.getBornTimestamp());
        made.add("properties", Lines.GSON.toJsonTree(properties));
        return made;
    }

    private static Duration millis(JsonObject in, String name) {
        return Duration.ofMillis(in.get(name).getAsLong());
    }

    private static String text(JsonObject in, String name) {
        return in.get(name).getAsString();
    }
}
