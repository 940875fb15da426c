package io.pocketmq.interop;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Messages, queues and results to and from JSON. */
final class Messages {
    private Messages() {}

    /**
     * Reads {topic, body | body64, tags, keys, flag, delay, wait, properties, system}. "properties" are the user's; "system"
     * may name RocketMQ's own properties, which the public API refuses.
     */
    static Message read(JsonObject in) {
        byte[] body = in.has("body64")
                ? Base64.getDecoder().decode(in.get("body64").getAsString())
                : Arguments.text(in, "body", "").getBytes(StandardCharsets.UTF_8);
        Message message = new Message(in.get("topic").getAsString(), body);
        if (Arguments.has(in, "tags")) {
            message.setTags(in.get("tags").getAsString());
        }
        if (Arguments.has(in, "keys")) {
            message.setKeys(in.get("keys").getAsString());
        }
        if (Arguments.has(in, "delay")) {
            message.setDelayTimeLevel(in.get("delay").getAsInt());
        }
        if (Arguments.has(in, "wait")) {
            message.setWaitStoreMsgOK(in.get("wait").getAsBoolean());
        }
        message.setFlag(Arguments.number(in, "flag", 0));
        if (Arguments.has(in, "properties")) {
            for (Map.Entry<String, JsonElement> each : in.getAsJsonObject("properties").entrySet()) {
                message.putUserProperty(each.getKey(), each.getValue().getAsString());
            }
        }
        if (Arguments.has(in, "system")) {
            for (Map.Entry<String, JsonElement> each : in.getAsJsonObject("system").entrySet()) {
                MessageAccessor.putProperty(message, each.getKey(), each.getValue().getAsString());
            }
        }
        return message;
    }

    static List<Message> readAll(JsonObject in) {
        List<Message> messages = new ArrayList<>();
        for (JsonElement each : in.getAsJsonArray("messages")) {
            messages.add(read(each.getAsJsonObject()));
        }
        return messages;
    }

    static Map<String, Object> write(Message message) {
        Map<String, Object> out = new LinkedHashMap<>();
        out.put("topic", message.getTopic());
        out.put("body64", message.getBody() == null ? "" : Base64.getEncoder().encodeToString(message.getBody()));
        out.put("flag", message.getFlag());
        out.put("properties", new HashMap<>(message.getProperties() == null ? Map.of() : message.getProperties()));
        out.put("transaction_id", message.getTransactionId());
        if (message instanceof MessageExt) {
            MessageExt stored = (MessageExt) message;
            out.put("broker", stored.getBrokerName());
            out.put("queue", stored.getQueueId());
            out.put("offset", stored.getQueueOffset());
            out.put("position", stored.getCommitLogOffset());
            out.put("msg_id", stored.getMsgId());
            out.put("offset_msg_id",
                    stored instanceof MessageClientExt ? ((MessageClientExt) stored).getOffsetMsgId() : "");
            out.put("store_size", stored.getStoreSize());
            out.put("sys_flag", stored.getSysFlag());
            out.put("body_crc", stored.getBodyCRC());
            out.put("born_ms", stored.getBornTimestamp());
            out.put("store_ms", stored.getStoreTimestamp());
            out.put("born_host", String.valueOf(stored.getBornHost()));
            out.put("store_host", String.valueOf(stored.getStoreHost()));
            out.put("reconsume_times", stored.getReconsumeTimes());
            out.put("prepared_offset", stored.getPreparedTransactionOffset());
        }
        return out;
    }

    static List<Object> writeAll(List<? extends Message> messages) {
        List<Object> out = new ArrayList<>();
        if (messages != null) {
            messages.forEach(each -> out.add(write(each)));
        }
        return out;
    }

    static Map<String, Object> write(SendResult result) {
        if (result == null) {
            return null;
        }
        Map<String, Object> out = new LinkedHashMap<>();
        out.put("status", result.getSendStatus().name());
        out.put("msg_id", result.getMsgId());
        out.put("offset_msg_id", result.getOffsetMsgId());
        out.put("broker", result.getMessageQueue() == null ? null : result.getMessageQueue().getBrokerName());
        out.put("queue", result.getMessageQueue() == null ? null : result.getMessageQueue().getQueueId());
        out.put("offset", result.getQueueOffset());
        out.put("transaction_id", result.getTransactionId());
        out.put("region", result.getRegionId());
        out.put("trace_on", result.isTraceOn());
        try {
            out.put("recall_handle", SendResult.class.getMethod("getRecallHandle").invoke(result));
        } catch (ReflectiveOperationException four) {
            out.put("recall_handle", null);
        }
        return out;
    }

    static MessageQueue queue(JsonObject in) {
        return new MessageQueue(
                in.get("topic").getAsString(), in.get("broker").getAsString(), in.get("queue").getAsInt());
    }

    static Map<String, Object> write(MessageQueue queue) {
        Map<String, Object> out = new LinkedHashMap<>();
        out.put("topic", queue.getTopic());
        out.put("broker", queue.getBrokerName());
        out.put("queue", queue.getQueueId());
        return out;
    }

    static List<Object> writeQueues(Iterable<MessageQueue> queues) {
        List<MessageQueue> sorted = new ArrayList<>();
        queues.forEach(sorted::add);
        sorted.sort(null);
        List<Object> out = new ArrayList<>();
        sorted.forEach(each -> out.add(write(each)));
        return out;
    }
}
