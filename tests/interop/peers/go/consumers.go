package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

var (
	pushing sync.Map // name -> *push
	pulling sync.Map // name -> rocketmq.PullConsumer
)

type push struct {
	consumer rocketmq.PushConsumer
	mutex    sync.Mutex
	result   string
	delay    time.Duration
}

func (p *push) behaviour() (string, time.Duration) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.result, p.delay
}

func options(in *input) []consumer.Option {
	made := []consumer.Option{
		consumer.WithNsResolver(primitive.NewPassthroughResolver([]string{in.Namesrv})),
		consumer.WithGroupName(in.Group),
		consumer.WithInstance(in.Name),
		consumer.WithConsumerOrder(in.Orderly),
	}
	if in.Set["consumeFromWhere"] == "CONSUME_FROM_FIRST_OFFSET" {
		made = append(made, consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	}
	if in.Set["messageModel"] == "BROADCASTING" {
		made = append(made, consumer.WithConsumerModel(consumer.BroadCasting))
	}
	if times, given := in.Set["maxReconsumeTimes"].(float64); given {
		made = append(made, consumer.WithMaxReconsumeTimes(int32(times)))
	}
	if in.AccessKey != "" {
		made = append(made, consumer.WithCredentials(
			primitive.Credentials{AccessKey: in.AccessKey, SecretKey: in.SecretKey}))
	}
	return made
}

func selectorOf(given subscription) consumer.MessageSelector {
	expression := given.Expression
	if expression == "" {
		expression = "*"
	}
	if given.Type == "SQL92" {
		return consumer.MessageSelector{Type: consumer.SQL92, Expression: expression}
	}
	return consumer.MessageSelector{Type: consumer.TAG, Expression: expression}
}

func startPush(in *input) (any, error) {
	made, err := rocketmq.NewPushConsumer(options(in)...)
	if err != nil {
		return nil, err
	}
	this := &push{consumer: made, result: in.Result, delay: time.Duration(in.DelayMs) * time.Millisecond}
	for _, each := range in.Subscriptions {
		err := made.Subscribe(each.Topic, selectorOf(each),
			func(_ context.Context, got ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
				return this.listen(in, got)
			})
		if err != nil {
			return nil, err
		}
	}
	pushing.Store(in.Name, this)
	return nil, made.Start()
}

func (p *push) listen(in *input, got []*primitive.MessageExt) (consumer.ConsumeResult, error) {
	result, delay := p.behaviour()
	success := result != "later"
	for _, each := range got {
		if each.ReconsumeTimes < failTimes(each) {
			success = false
		}
	}
	time.Sleep(delay)
	for _, each := range got {
		say(object{"event": "message", "consumer": in.Name, "success": success, "message": received(each)})
		if in.ReplyBy != "" {
			if err := reply(in.ReplyBy, each); err != nil {
				return consumer.ConsumeRetryLater, err
			}
		}
	}
	switch {
	case success:
		return consumer.ConsumeSuccess, nil
	case in.Orderly:
		return consumer.SuspendCurrentQueueAMoment, nil
	}
	return consumer.ConsumeRetryLater, nil
}

func reply(by string, asked *primitive.MessageExt) error {
	from, err := producerCalled(by)
	if err != nil {
		return err
	}
	answer, err := consumer.CreateReplyMessage(asked, nil)
	if err != nil {
		return err
	}
	// CreateReplyMessage of v2.1.2 reads the body as properties and forgets it.
	answer.Body = []byte("reply to " + string(asked.Body))
	_, err = from.SendSync(context.Background(), answer)
	return err
}

func behave(in *input) (any, error) {
	found, known := pushing.Load(in.Consumer)
	if !known {
		return nil, unknown("push consumer", in.Consumer)
	}
	this := found.(*push)
	this.mutex.Lock()
	defer this.mutex.Unlock()
	if in.Result != "" {
		this.result = in.Result
	}
	this.delay = time.Duration(in.DelayMs) * time.Millisecond
	return nil, nil
}

func startPull(in *input) (any, error) {
	made, err := rocketmq.NewPullConsumer(options(in)...)
	if err != nil {
		return nil, err
	}
	for _, each := range in.Subscriptions {
		if err := made.Subscribe(each.Topic, selectorOf(each)); err != nil {
			return nil, err
		}
	}
	pulling.Store(in.Name, made)
	return nil, made.Start()
}

var pullNames = map[primitive.PullStatus]string{
	primitive.PullFound:         "FOUND",
	primitive.PullNoNewMsg:      "NO_NEW_MSG",
	primitive.PullNoMsgMatched:  "NO_MATCHED_MSG",
	primitive.PullOffsetIllegal: "OFFSET_ILLEGAL",
}

func pull(in *input) (any, error) {
	found, known := pulling.Load(in.Consumer)
	if !known {
		return nil, unknown("pull consumer", in.Consumer)
	}
	if in.Queue == nil {
		return nil, fmt.Errorf("pull needs a queue")
	}
	queue := &primitive.MessageQueue{Topic: in.Topic, BrokerName: in.Broker, QueueId: *in.Queue}
	result, err := found.(rocketmq.PullConsumer).PullFrom(context.Background(), queue, in.Offset, in.Count)
	if err != nil {
		return nil, err
	}
	got := make([]object, 0)
	for _, each := range result.GetMessageExts() {
		got = append(got, received(each))
	}
	return object{
		"status": pullNames[result.Status], "next": result.NextBeginOffset,
		"min": result.MinOffset, "max": result.MaxOffset, "messages": got,
	}, nil
}

func shutdown(in *input) (any, error) {
	if found, known := producers.LoadAndDelete(in.Name); known {
		return true, found.(rocketmq.Producer).Shutdown()
	}
	if found, known := transactions.LoadAndDelete(in.Name); known {
		return true, found.(rocketmq.TransactionProducer).Shutdown()
	}
	if found, known := pushing.LoadAndDelete(in.Name); known {
		return true, found.(*push).consumer.Shutdown()
	}
	if found, known := pulling.LoadAndDelete(in.Name); known {
		return true, found.(rocketmq.PullConsumer).Shutdown()
	}
	return false, nil
}
