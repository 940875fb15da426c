package main

import (
	"context"
	"encoding/base64"
	"errors"
	"hash/fnv"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

var (
	producers    sync.Map // name -> rocketmq.Producer
	transactions sync.Map // name -> rocketmq.TransactionProducer
)

func startProducer(in *input) (any, error) {
	options := []producer.Option{
		producer.WithNsResolver(primitive.NewPassthroughResolver([]string{in.Namesrv})),
		producer.WithGroupName(in.Group),
		producer.WithInstanceName(in.Name),
		producer.WithSendMsgTimeout(10 * time.Second),
		producer.WithQueueSelector(selector{producer.NewRoundRobinQueueSelector()}),
	}
	if in.AccessKey != "" {
		options = append(options, producer.WithCredentials(
			primitive.Credentials{AccessKey: in.AccessKey, SecretKey: in.SecretKey}))
	}
	if retries, given := in.Set["retries"].(float64); given {
		options = append(options, producer.WithRetry(int(retries)))
	}
	if in.Transactional {
		made, err := rocketmq.NewTransactionProducer(byProperty{in.Name}, options...)
		if err != nil {
			return nil, err
		}
		transactions.Store(in.Name, made)
		return nil, made.Start()
	}
	made, err := rocketmq.NewProducer(options...)
	if err != nil {
		return nil, err
	}
	producers.Store(in.Name, made)
	return nil, made.Start()
}

// selector sends to the queue that the driver chose with queue or shard, else round robin.
type selector struct{ producer.QueueSelector }

func (s selector) Select(
	message *primitive.Message, queues []*primitive.MessageQueue, lastBroker string,
) *primitive.MessageQueue {
	if message.Queue != nil {
		for _, each := range queues {
			if each.QueueId == message.Queue.QueueId {
				return each
			}
		}
	}
	if shard := message.GetShardingKey(); shard != "" {
		hash := fnv.New32a()
		_, _ = hash.Write([]byte(shard))
		return queues[int(hash.Sum32()%uint32(len(queues)))]
	}
	return s.QueueSelector.Select(message, queues, lastBroker)
}

func producerCalled(name string) (rocketmq.Producer, error) {
	found, known := producers.Load(name)
	if !known {
		return nil, unknown("producer", name)
	}
	return found.(rocketmq.Producer), nil
}

func send(in *input) (any, error) {
	from, err := producerCalled(in.Producer)
	if err != nil {
		return nil, err
	}
	made, err := messages(in.Messages)
	if err != nil {
		return nil, err
	}
	for _, each := range made {
		if in.Queue != nil {
			each.Queue = &primitive.MessageQueue{QueueId: *in.Queue}
		}
		if in.Shard != "" {
			each.WithShardingKey(in.Shard)
		}
	}
	switch in.Mode {
	case "", "sync":
		results := make([]object, 0, len(made))
		for _, each := range made {
			result, err := from.SendSync(context.Background(), each)
			if err != nil {
				return nil, err
			}
			results = append(results, sent(result))
		}
		return results, nil
	case "async":
		return sendAsync(from, made)
	case "oneway":
		for _, each := range made {
			if err := from.SendOneWay(context.Background(), each); err != nil {
				return nil, err
			}
		}
		return nil, nil
	case "batch":
		result, err := from.SendSync(context.Background(), made...)
		if err != nil {
			return nil, err
		}
		return []object{sent(result)}, nil
	}
	return nil, errors.New("mode is sync, async, oneway or batch")
}

func sendAsync(from rocketmq.Producer, made []*primitive.Message) (any, error) {
	results := make([]object, len(made))
	var open sync.WaitGroup
	for i, each := range made {
		open.Add(1)
		at := i
		err := from.SendAsync(context.Background(),
			func(_ context.Context, result *primitive.SendResult, err error) {
				if err != nil {
					results[at] = object{"error": failure(err)}
				} else {
					results[at] = sent(result)
				}
				open.Done()
			}, each)
		if err != nil {
			return nil, err
		}
	}
	open.Wait()
	return results, nil
}

func request(in *input) (any, error) {
	from, err := producerCalled(in.Producer)
	if err != nil {
		return nil, err
	}
	asked, err := in.Message.message()
	if err != nil {
		return nil, err
	}
	answer, err := from.Request(context.Background(), time.Duration(in.TimeoutMs)*time.Millisecond, asked)
	if err != nil {
		return nil, err
	}
	said := received(&primitive.MessageExt{})
	said["topic"] = answer.Topic
	said["body64"] = base64.StdEncoding.EncodeToString(answer.Body)
	said["properties"] = answer.GetProperties()
	return said, nil
}

// byProperty answers by the user properties "local" (at once) and "check" (when the broker asks).
type byProperty struct{ producer string }

var states = map[string]primitive.LocalTransactionState{
	"COMMIT":   primitive.CommitMessageState,
	"ROLLBACK": primitive.RollbackMessageState,
}

func state(word string) primitive.LocalTransactionState {
	if known, given := states[word]; given {
		return known
	}
	return primitive.UnknowState
}

func (b byProperty) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	return state(message.GetProperty("local"))
}

func (b byProperty) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	say(object{"event": "check", "producer": b.producer, "message": received(message)})
	return state(message.GetProperty("check"))
}

func transaction(in *input) (any, error) {
	found, known := transactions.Load(in.Producer)
	if !known {
		return nil, unknown("transaction producer", in.Producer)
	}
	made, err := messages(in.Messages)
	if err != nil {
		return nil, err
	}
	results := make([]object, 0, len(made))
	for _, each := range made {
		result, err := found.(rocketmq.TransactionProducer).SendMessageInTransaction(context.Background(), each)
		if err != nil {
			return nil, err
		}
		said := sent(result.SendResult)
		said["state"] = result.State
		results = append(results, said)
	}
	return results, nil
}
