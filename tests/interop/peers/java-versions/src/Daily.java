import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;
import java.util.function.Supplier;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * What an application does every day, with the calls that all clients from 4.3 on have. Arguments: the name server and
 * a word for the names of topics and groups. Prints a line "ok WHAT" or "FAIL WHAT" for each check.
 */
public final class Daily {
    private final String namesrv;
    private final String word;
    private final String topic;

    private Daily(String namesrv, String word) {
        this.namesrv = namesrv;
        this.word = word;
        this.topic = "Daily" + word;
    }

    public static void main(String[] arguments) throws Exception {
        new Daily(arguments[0], arguments[1]).run();
        // Some versions leave threads that are no daemons.
        System.exit(0);
    }

    private void run() throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("producer" + word);
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName("producer" + word);
        producer.start();
        send(producer);
        TransactionMQProducer transactions = new TransactionMQProducer("transactions" + word);
        Set<String> asked = ConcurrentHashMap.newKeySet();
        sendInTransactions(transactions, asked);

        Set<String> all = ConcurrentHashMap.newKeySet();
        Set<String> tags = ConcurrentHashMap.newKeySet();
        Set<String> selected = ConcurrentHashMap.newKeySet();
        List<String> ordered = Collections.synchronizedList(new ArrayList<>());
        DefaultMQPushConsumer byTag = consumer("Tags");
        byTag.subscribe(topic, "A || C");
        listen(byTag, message -> tags.add(text(message)) | true);
        DefaultMQPushConsumer bySql = consumer("Sql");
        bySql.subscribe(topic, MessageSelector.bySql("n >= 5 AND TAGS = 'B'"));
        listen(bySql, message -> selected.add(text(message)) | true);
        DefaultMQPushConsumer inOrder = consumer("Order");
        inOrder.subscribe(topic + "Order", "*");
        inOrder.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            messages.forEach(message -> ordered.add(text(message)));
            return ConsumeOrderlyStatus.SUCCESS;
        });
        inOrder.start();
        DefaultMQPushConsumer whole = consumer("All");
        whole.subscribe(topic, "*");
        listen(whole, message -> {
            boolean first = text(message).equals("m3") && message.getReconsumeTimes() == 0;
            return !first && (all.add(text(message) + (message.getReconsumeTimes() > 0 ? " again" : "")) | true);
        });

        check("tags", () -> tags.size() == 18);
        check("SQL92", () -> selected.equals(new TreeSet<>(Arrays.asList(
                "m5", "m7", "m9", "m11", "m13", "m15", "m17", "m19"))));
        check("order", () -> ordered.equals(Arrays.asList("0", "1", "2", "3", "4", "5", "6", "7", "8", "9")));
        check("retry", () -> all.contains("m3 again"));
        check("delay", () -> all.contains("delayed"));
        check("compressed", () -> all.contains("x".repeat(20_000)));
        check("commit", () -> all.contains("commit"));
        check("check of a transaction", () -> asked.contains("unknown") && all.contains("unknown"));
        check("all of them and no more, nothing rolled back: " + all.size(), () -> all.size() == 20 + 8 + 4 + 2);
        check("by key", () -> found(producer, "k4") == 1);
        MessageQueue queue = producer.fetchPublishMessageQueues(topic).get(0);
        say("offsets", whole.maxOffset(queue) > 0 && whole.minOffset(queue) == 0 && whole.searchOffset(queue, 0) == 0);
    }

    private void send(DefaultMQProducer producer) throws Exception {
        for (int i = 0; i < 20; i++) {
            Message message = message(i % 2 == 0 ? "A" : "B", "m" + i);
            message.setKeys("k" + i);
            message.putUserProperty("n", Integer.toString(i));
            producer.send(message);
        }
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < 8; i++) {
            batch.add(message("C", "b" + i));
        }
        say("ids of a batch", producer.send(batch).getMsgId().split(",").length == 8);
        producer.sendOneway(message("D", "oneway"));
        CompletableFuture<SendResult> sent = new CompletableFuture<>();
        producer.send(message("D", "async"), new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                sent.complete(result);
            }

            @Override
            public void onException(Throwable failure) {
                sent.completeExceptionally(failure);
            }
        });
        sent.get(20, TimeUnit.SECONDS);
        Message delayed = message("E", "delayed");
        delayed.setDelayTimeLevel(1);
        producer.send(delayed);
        producer.send(message("F", "x".repeat(20_000)));
        for (int i = 0; i < 10; i++) {
            Message message = new Message(topic + "Order", bytes(Integer.toString(i)));
            producer.send(message, (queues, each, argument) -> queues.get(0), null);
        }
    }

    private void sendInTransactions(TransactionMQProducer producer, Set<String> asked) throws Exception {
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName("transactions" + word);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object state) {
                return (LocalTransactionState) state;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                asked.add(text(message));
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        producer.start();
        producer.sendMessageInTransaction(message("T", "commit"), LocalTransactionState.COMMIT_MESSAGE);
        producer.sendMessageInTransaction(message("T", "rollback"), LocalTransactionState.ROLLBACK_MESSAGE);
        producer.sendMessageInTransaction(message("T", "unknown"), LocalTransactionState.UNKNOW);
    }

    private DefaultMQPushConsumer consumer(String purpose) {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("consumer" + purpose + word);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(purpose + word);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        return consumer;
    }

    private static void listen(DefaultMQPushConsumer consumer, Predicate<MessageExt> done) throws Exception {
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
                messages.stream().allMatch(done)
                        ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS
                        : ConsumeConcurrentlyStatus.RECONSUME_LATER);
        consumer.start();
    }

    private int found(DefaultMQProducer producer, String key) {
        try {
            return producer.queryMessage(topic, key, 10, 0, System.currentTimeMillis() + 10_000).getMessageList().size();
        } catch (Exception notYet) {
            return 0;
        }
    }

    private Message message(String tag, String body) {
        return new Message(topic, tag, bytes(body));
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String text(Message message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    /** Waits: retries, delays and checks of transactions take their time. */
    private static void check(String what, Supplier<Boolean> holds) throws InterruptedException {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(120);
        while (!holds.get() && System.nanoTime() < end) {
            Thread.sleep(50);
        }
        say(what, holds.get());
    }

    private static void say(String what, boolean holds) {
        System.out.println((holds ? "ok " : "FAIL ") + what);
    }
}
