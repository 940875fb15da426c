import java.util.ArrayList;
import java.util.Collections;
import java.util.Set;
import java.util.HashSet;
import java.util.List;
import java.util.Arrays;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

/** Prints, for 1..12 queues and 1..12 consumers, what the official strategies give to each consumer. */
public class Allocate {
    static final int MAX = 12;

    static List<MessageQueue> queues(int count) {
        List<MessageQueue> made = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            made.add(new MessageQueue("TopicTest", "room" + i % 3 + "@broker" + i % 2, i));
        }
        Collections.sort(made);
        return made;
    }

    static List<String> consumers(int count) {
        List<String> made = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            made.add("room" + i % 4 + "-10.0.0." + i + "@" + (40000 + i));
        }
        Collections.sort(made);
        return made;
    }

    static AllocateMessageQueueStrategy nearby(AllocateMessageQueueStrategy inner) {
        return new AllocateMachineRoomNearby(inner, new AllocateMachineRoomNearby.MachineRoomResolver() {
            public String brokerDeployIn(MessageQueue queue) {
                return queue.getBrokerName().split("@")[0];
            }

            public String consumerDeployIn(String clientId) {
                return clientId.split("-")[0];
            }
        });
    }

    static AllocateMessageQueueStrategy room() {
        AllocateMessageQueueByMachineRoom strategy = new AllocateMessageQueueByMachineRoom();
        strategy.setConsumeridcs(new HashSet<>(Arrays.asList("room0", "room2")));
        return strategy;
    }

    static AllocateMessageQueueStrategy config(List<MessageQueue> queues) {
        AllocateMessageQueueByConfig strategy = new AllocateMessageQueueByConfig();
        strategy.setMessageQueueList(queues.subList(0, (queues.size() + 1) / 2));
        return strategy;
    }

    public static void main(String[] words) {
        for (int n = 1; n <= MAX; n++) {
            List<MessageQueue> queues = queues(n);
            for (int m = 1; m <= MAX; m++) {
                List<String> consumers = consumers(m);
                AllocateMessageQueueStrategy[] strategies = {
                    new AllocateMessageQueueAveragely(),
                    new AllocateMessageQueueAveragelyByCircle(),
                    config(queues),
                    room(),
                    nearby(new AllocateMessageQueueAveragely()),
                    nearby(new AllocateMessageQueueAveragelyByCircle()),
                    new AllocateMessageQueueConsistentHash(),
                };
                for (AllocateMessageQueueStrategy strategy : strategies) {
                    StringBuilder line = new StringBuilder();
                    line.append(strategy.getName()).append(' ').append(n).append(' ').append(m);
                    for (String consumer : consumers) {
                        line.append(' ');
                        StringBuilder share = new StringBuilder();
                        for (MessageQueue queue : strategy.allocate("group", consumer, queues, consumers)) {
                            share.append(share.length() == 0 ? "" : ",").append(queues.indexOf(queue));
                        }
                        line.append(share.length() == 0 ? "-" : share);
                    }
                    System.out.println(line);
                }
            }
        }
    }
}
