package io.pocketmq.interop;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Push, lite pull and pull consumers, by name. */
final class Consumers {
    private final Map<String, Push> pushing = new ConcurrentHashMap<>();
    private final Map<String, DefaultLitePullConsumer> lite = new ConcurrentHashMap<>();
    private final Map<String, DefaultMQPullConsumer> pulling = new ConcurrentHashMap<>();
    private final Producers producers;

    Consumers(Producers producers) {
        this.producers = producers;
    }

    void register(Lines lines) {
        lines.on("push_consumer", this::startPush);
        lines.on("behave", this::behave);
        lines.on("suspend", in -> {
            push(in).consumer.suspend();
            return null;
        });
        lines.on("resume", in -> {
            push(in).consumer.resume();
            return null;
        });
        lines.on("assigned", in -> Messages.writeQueues(push(in).consumer.getDefaultMQPushConsumerImpl()
                .getRebalanceImpl().getProcessQueueTable().keySet()));
        lines.on("subscribe", this::subscribe);
        lines.on("unsubscribe", in -> {
            push(in).consumer.unsubscribe(in.get("topic").getAsString());
            return null;
        });
        lines.on("heartbeat", this::heartbeat);
        lines.on("persist_offsets", in -> {
            push(in).consumer.getDefaultMQPushConsumerImpl().persistConsumerOffset();
            return null;
        });

        lines.on("lite_consumer", this::startLite);
        lines.on("poll", in -> Messages.writeAll(lite(in).poll(Arguments.big(in, "timeout_ms", 5_000))));
        lines.on("assign", in -> {
            lite(in).assign(queues(in));
            return null;
        });
        lines.on("seek", in -> {
            lite(in).seek(Messages.queue(in), in.get("offset").getAsLong());
            return null;
        });
        lines.on("commit", in -> {
            lite(in).commitSync();
            return null;
        });
        lines.on("committed", in -> lite(in).committed(Messages.queue(in)));
        lines.on("lite_queues", in -> Messages.writeQueues(lite(in).fetchMessageQueues(in.get("topic").getAsString())));
        lines.on("offset_for", in -> lite(in).offsetForTimestamp(Messages.queue(in), in.get("ms").getAsLong()));

        lines.on("pull_consumer", this::startPull);
        lines.on("pull", this::pull);
        lines.on("subscribe_queues", in -> Messages.writeQueues(
                pull(in.get("consumer").getAsString()).fetchSubscribeMessageQueues(in.get("topic").getAsString())));
        lines.on("fetch_offset", in -> pull(in.get("consumer").getAsString())
                .fetchConsumeOffset(Messages.queue(in), true));
        lines.on("update_offset", this::updateOffset);
        lines.on("send_back", this::sendBack);
    }

    boolean shutdown(String name) {
        Push push = pushing.remove(name);
        DefaultLitePullConsumer some = lite.remove(name);
        DefaultMQPullConsumer old = pulling.remove(name);
        if (push != null) {
            push.consumer.shutdown();
        }
        if (some != null) {
            some.shutdown();
        }
        if (old != null) {
            old.shutdown();
        }
        return push != null || some != null || old != null;
    }

    // ---- push

    /** A push consumer and what its listener answers. */
    private static final class Push {
        final DefaultMQPushConsumer consumer;
        volatile String result = "success";
        volatile long delayMs;

        Push(DefaultMQPushConsumer consumer) {
            this.consumer = consumer;
        }
    }

    private Push push(JsonObject in) {
        return pushing.get(in.get("consumer").getAsString());
    }

    private Object startPush(JsonObject in) throws Exception {
        String name = in.get("name").getAsString();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(in.get("group").getAsString(),
                Producers.acl(in), new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(in.get("namesrv").getAsString());
        consumer.setInstanceName(Arguments.text(in, "instance", name));
        Arguments.set(consumer, in.getAsJsonObject("set"));
        for (JsonElement each : in.getAsJsonArray("subscriptions")) {
            subscribe(consumer, each.getAsJsonObject());
        }
        Push push = new Push(consumer);
        push.result = Arguments.text(in, "result", "success");
        push.delayMs = Arguments.big(in, "delay_ms", 0);
        String replyBy = Arguments.text(in, "reply_by", null);
        if (Arguments.flag(in, "orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                return listen(name, push, messages, replyBy)
                        ? ConsumeOrderlyStatus.SUCCESS
                        : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                return listen(name, push, messages, replyBy)
                        ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS
                        : ConsumeConcurrentlyStatus.RECONSUME_LATER;
            });
        }
        consumer.start();
        pushing.put(name, push);
        return consumer.buildMQClientId();
    }

    /**
     * Reports each message and says whether it counts as consumed: "later" and "throw" never do; else a message whose user
     * property "fail_times" is above its reconsume times does not.
     */
    private boolean listen(String name, Push push, List<MessageExt> messages, String replyBy) {
        boolean success = !"later".equals(push.result);
        for (MessageExt each : messages) {
            String failTimes = each.getUserProperty("fail_times");
            if (failTimes != null && each.getReconsumeTimes() < Integer.parseInt(failTimes)) {
                success = false;
            }
        }
        try {
            TimeUnit.MILLISECONDS.sleep(push.delayMs);
            for (MessageExt each : messages) {
                JsonObject event = new JsonObject();
                event.addProperty("event", "message");
                event.addProperty("consumer", name);
                event.addProperty("success", success);
                event.add("message", Lines.GSON.toJsonTree(Messages.write(each)));
                Lines.event(event);
                if (replyBy != null) {
                    JsonObject by = new JsonObject();
                    by.addProperty("producer", replyBy);
                    DefaultMQProducer producer = producers.producer(by);
                    byte[] body = ("reply to " + new String(each.getBody(), StandardCharsets.UTF_8))
                            .getBytes(StandardCharsets.UTF_8);
                    producer.send(MessageUtil.createReplyMessage(each, body), 10_000);
                }
            }
        } catch (Exception failure) {
            throw new IllegalStateException(failure);
        }
        if ("throw".equals(push.result)) {
            throw new IllegalStateException("the listener was told to throw");
        }
        return success;
    }

    private Object behave(JsonObject in) {
        Push push = push(in);
        push.result = Arguments.text(in, "result", push.result);
        push.delayMs = Arguments.big(in, "delay_ms", push.delayMs);
        return null;
    }

    private Object subscribe(JsonObject in) throws Exception {
        subscribe(push(in).consumer, in);
        return null;
    }

    /** Sends a heartbeat now; the client's own come every 30 s. The factory's getter has another name in 5.x. */
    private Object heartbeat(JsonObject in) throws Exception {
        Object pushing = push(in).consumer.getDefaultMQPushConsumerImpl();
        Object instance = pushing.getClass().getMethod("getmQClientFactory").invoke(pushing);
        instance.getClass().getMethod("sendHeartbeatToAllBrokerWithLock").invoke(instance);
        return null;
    }

    private static void subscribe(DefaultMQPushConsumer consumer, JsonObject in) throws Exception {
        String topic = in.get("topic").getAsString();
        String expression = Arguments.text(in, "expression", "*");
        if ("SQL92".equals(Arguments.text(in, "type", "TAG"))) {
            consumer.subscribe(topic, MessageSelector.bySql(expression));
        } else {
            consumer.subscribe(topic, expression);
        }
    }

    // ---- lite pull

    private DefaultLitePullConsumer lite(JsonObject in) {
        return lite.get(in.get("consumer").getAsString());
    }

    private Object startLite(JsonObject in) throws Exception {
        String name = in.get("name").getAsString();
        DefaultLitePullConsumer consumer =
                new DefaultLitePullConsumer(in.get("group").getAsString(), Producers.acl(in));
        consumer.setNamesrvAddr(in.get("namesrv").getAsString());
        consumer.setInstanceName(Arguments.text(in, "instance", name));
        Arguments.set(consumer, in.getAsJsonObject("set"));
        JsonArray subscriptions = in.getAsJsonArray("subscriptions");
        if (subscriptions != null) {
            for (JsonElement each : subscriptions) {
                JsonObject subscription = each.getAsJsonObject();
                String topic = subscription.get("topic").getAsString();
                String expression = Arguments.text(subscription, "expression", "*");
                if ("SQL92".equals(Arguments.text(subscription, "type", "TAG"))) {
                    consumer.subscribe(topic, MessageSelector.bySql(expression));
                } else {
                    consumer.subscribe(topic, expression);
                }
            }
        }
        consumer.start();
        lite.put(name, consumer);
        return null;
    }

    private static List<MessageQueue> queues(JsonObject in) {
        List<MessageQueue> queues = new ArrayList<>();
        for (JsonElement each : in.getAsJsonArray("queues")) {
            queues.add(Messages.queue(each.getAsJsonObject()));
        }
        return queues;
    }

    // ---- pull

    private DefaultMQPullConsumer pull(String name) {
        return pulling.get(name);
    }

    private Object startPull(JsonObject in) throws Exception {
        String name = in.get("name").getAsString();
        DefaultMQPullConsumer consumer =
                new DefaultMQPullConsumer(in.get("group").getAsString(), Producers.acl(in));
        consumer.setNamesrvAddr(in.get("namesrv").getAsString());
        consumer.setInstanceName(Arguments.text(in, "instance", name));
        Arguments.set(consumer, in.getAsJsonObject("set"));
        consumer.start();
        pulling.put(name, consumer);
        return null;
    }

    private Object pull(JsonObject in) throws Exception {
        DefaultMQPullConsumer consumer = pull(in.get("consumer").getAsString());
        MessageQueue queue = Messages.queue(in);
        String expression = Arguments.text(in, "expression", "*");
        long offset = in.get("offset").getAsLong();
        int count = Arguments.number(in, "count", 32);
        PullResult result;
        if ("SQL92".equals(Arguments.text(in, "type", "TAG"))) {
            result = consumer.pull(queue, MessageSelector.bySql(expression), offset, count);
        } else if (Arguments.flag(in, "block")) {
            result = consumer.pullBlockIfNotFound(queue, expression, offset, count);
        } else {
            result = consumer.pull(queue, expression, offset, count);
        }
        Map<String, Object> out = new LinkedHashMap<>();
        out.put("status", result.getPullStatus().name());
        out.put("next", result.getNextBeginOffset());
        out.put("min", result.getMinOffset());
        out.put("max", result.getMaxOffset());
        out.put("messages", Messages.writeAll(result.getMsgFoundList()));
        return out;
    }

    private Object updateOffset(JsonObject in) throws Exception {
        DefaultMQPullConsumer consumer = pull(in.get("consumer").getAsString());
        MessageQueue queue = Messages.queue(in);
        consumer.updateConsumeOffset(queue, in.get("offset").getAsLong());
        consumer.getOffsetStore().persist(queue);
        return null;
    }

    /** Sends one pulled message back, as a failed push consumer does. */
    private Object sendBack(JsonObject in) throws Exception {
        DefaultMQPullConsumer consumer = pull(in.get("consumer").getAsString());
        PullResult found = consumer.pull(Messages.queue(in), "*", in.get("offset").getAsLong(), 1);
        Map<String, Object> out = new HashMap<>();
        for (MessageExt each : found.getMsgFoundList()) {
            consumer.sendMessageBack(each, Arguments.number(in, "delay", 1), in.get("broker").getAsString());
            out.put("msg_id", each.getMsgId());
        }
        return out;
    }
}
