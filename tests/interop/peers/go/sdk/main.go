// The SDK of RocketMQ 5 for Go; the commands are those of tests/interop/sdks.py.
//
// A line in is {"id": n, "do": "command", ...}; a line out is {"id": n, "ok": value}, {"id": n, "error": {...}} or, unasked,
// {"event": "name", ...}. Commands run side by side. The end of standard input ends the process.
package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

type object = map[string]any

type given struct {
	Topic      string            `json:"topic"`
	Body       string            `json:"body"`
	Tag        *string           `json:"tag"`
	Key        *string           `json:"key"`
	Shard      *string           `json:"shard"`
	DelayMs    *int64            `json:"delay_ms"`
	End        *string           `json:"end"`
	Properties map[string]string `json:"properties"`
}

type input struct {
	ID            int      `json:"id"`
	Do            string   `json:"do"`
	Name          string   `json:"name"`
	Producer      string   `json:"producer"`
	Consumer      string   `json:"consumer"`
	Endpoint      string   `json:"endpoint"`
	Key           string   `json:"key"`
	Secret        string   `json:"secret"`
	TLS           bool     `json:"tls"`
	Group         string   `json:"group"`
	Topic         string   `json:"topic"`
	Handle        string   `json:"handle"`
	Topics        []string `json:"topics"`
	Messages      []given  `json:"messages"`
	AwaitMs       int64    `json:"await_ms"`
	InvisibleMs   int64    `json:"invisible_ms"`
	Count         int32    `json:"count"`
	Position      int      `json:"position"`
	Subscriptions []struct {
		Topic      string `json:"topic"`
		Expression string `json:"expression"`
		SQL        bool   `json:"sql"`
	} `json:"subscriptions"`
}

type stopper interface{ GracefulStop() error }

var (
	out      = os.Stdout
	mutex    sync.Mutex
	clients  = map[string]stopper{}
	received []*rmq.MessageView
	released = make(chan struct{})
	noClient = errors.New("no such client")
)

func main() {
	// What a library prints must not get between our lines.
	os.Stdout = os.Stderr
	rmq.ResetLogger()
	say(object{"event": "ready"})
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(make([]byte, 1<<20), 1<<30)
	for in.Scan() {
		line := &input{}
		if err := json.Unmarshal(in.Bytes(), line); err != nil {
			fmt.Fprintln(os.Stderr, "not a request:", err)
			continue
		}
		go func() {
			value, err := answer(line)
			if err == nil {
				say(object{"id": line.ID, "ok": value})
				return
			}
			failure := object{"class": "error", "message": err.Error(), "code": nil}
			if status, ok := rmq.AsErrRpcStatus(err); ok {
				failure["code"] = status.GetCode()
			}
			say(object{"id": line.ID, "error": failure})
		}()
	}
}

func say(line object) {
	text, _ := json.Marshal(line)
	mutex.Lock()
	defer mutex.Unlock()
	_, _ = out.Write(append(text, '\n'))
}

func keep(name string, client stopper) {
	mutex.Lock()
	defer mutex.Unlock()
	clients[name] = client
}

func of[T any](name string) (T, error) {
	mutex.Lock()
	defer mutex.Unlock()
	client, ok := clients[name].(T)
	if !ok {
		return client, noClient
	}
	return client, nil
}

func answer(in *input) (any, error) {
	switch in.Do {
	case "producer":
		return nil, startProducer(in)
	case "send":
		return send(in)
	case "recall":
		producer, err := of[rmq.Producer](in.Producer)
		if err != nil {
			return nil, err
		}
		return producer.Recall(context.Background(), in.Topic, in.Handle)
	case "simple":
		return nil, startSimple(in)
	case "receive":
		return receive(in)
	case "ack", "change":
		consumer, err := of[rmq.SimpleConsumer](in.Consumer)
		if err != nil {
			return nil, err
		}
		mutex.Lock()
		view := received[in.Position]
		mutex.Unlock()
		if in.Do == "ack" {
			return nil, consumer.Ack(context.Background(), view)
		}
		return nil, consumer.ChangeInvisibleDuration(view, time.Duration(in.InvisibleMs)*time.Millisecond)
	case "push":
		return nil, startPush(in)
	case "release":
		close(released)
		return nil, nil
	case "shutdown":
		client, err := of[stopper](in.Name)
		if err != nil {
			return nil, err
		}
		return nil, client.GracefulStop()
	}
	return nil, fmt.Errorf("the Go driver has no command %s", in.Do)
}

func config(in *input) *rmq.Config {
	rmq.EnableSsl = in.TLS
	made := &rmq.Config{Endpoint: in.Endpoint, ConsumerGroup: in.Group, Credentials: &credentials.SessionCredentials{}}
	made.Credentials.AccessKey, made.Credentials.AccessSecret = in.Key, in.Secret
	if in.Key == "" {
		made.Credentials = nil
	}
	return made
}

func startProducer(in *input) error {
	checker := &rmq.TransactionChecker{Check: func(view *rmq.MessageView) rmq.TransactionResolution {
		say(object{"event": "check", "producer": in.Name, "message": described(view)})
		if view.GetProperties()["check"] == "ROLLBACK" {
			return rmq.ROLLBACK
		}
		return rmq.COMMIT
	}}
	made, err := rmq.NewProducer(config(in), rmq.WithTopics(in.Topics...), rmq.WithTransactionChecker(checker))
	if err != nil {
		return err
	}
	keep(in.Name, made)
	return made.Start()
}

func send(in *input) (any, error) {
	producer, err := of[rmq.Producer](in.Producer)
	if err != nil {
		return nil, err
	}
	results := []object{}
	for _, each := range in.Messages {
		message := made(each)
		var receipts []*rmq.SendReceipt
		if each.End == nil {
			receipts, err = producer.Send(context.Background(), message)
		} else {
			transaction := producer.BeginTransaction()
			receipts, err = producer.SendWithTransaction(context.Background(), message, transaction)
			if err == nil && *each.End == "COMMIT" {
				err = transaction.Commit()
			} else if err == nil && *each.End == "ROLLBACK" {
				err = transaction.RollBack()
			}
		}
		if err != nil {
			return nil, err
		}
		results = append(results, object{"msg_id": receipts[0].MessageID, "recall_handle": receipts[0].RecallHandle})
	}
	return results, nil
}

func made(each given) *rmq.Message {
	message := &rmq.Message{Topic: each.Topic, Body: []byte(each.Body), Tag: each.Tag}
	if each.Key != nil {
		message.SetKeys(*each.Key)
	}
	if each.Shard != nil {
		message.SetMessageGroup(*each.Shard)
	}
	if each.DelayMs != nil {
		message.SetDelayTimestamp(time.Now().Add(time.Duration(*each.DelayMs) * time.Millisecond))
	}
	for name, value := range each.Properties {
		message.AddProperty(name, value)
	}
	return message
}

func subscriptions(in *input) map[string]*rmq.FilterExpression {
	found := map[string]*rmq.FilterExpression{}
	for _, each := range in.Subscriptions {
		kind := rmq.TAG
		if each.SQL {
			kind = rmq.SQL92
		}
		found[each.Topic] = rmq.NewFilterExpressionWithType(each.Expression, kind)
	}
	return found
}

func startSimple(in *input) error {
	await := time.Duration(in.AwaitMs) * time.Millisecond
	client, err := rmq.NewSimpleConsumer(config(in), rmq.WithSimpleAwaitDuration(await),
		rmq.WithSimpleSubscriptionExpressions(subscriptions(in)))
	if err != nil {
		return err
	}
	keep(in.Name, client)
	return client.Start()
}

func receive(in *input) (any, error) {
	consumer, err := of[rmq.SimpleConsumer](in.Consumer)
	if err != nil {
		return nil, err
	}
	views, err := consumer.Receive(context.Background(), in.Count, time.Duration(in.InvisibleMs)*time.Millisecond)
	var status *rmq.ErrRpcStatus
	if errors.As(err, &status) && status.GetCode() == 40401 {
		return []object{}, nil
	}
	if err != nil {
		return nil, err
	}
	found := []object{}
	mutex.Lock()
	defer mutex.Unlock()
	for _, view := range views {
		said := described(view)
		said["position"] = len(received)
		received = append(received, view)
		found = append(found, said)
	}
	return found, nil
}

func startPush(in *input) error {
	consume := func(view *rmq.MessageView) rmq.ConsumerResult {
		times, _ := strconv.Atoi(view.GetProperties()["fail_times"])
		success := int(view.GetDeliveryAttempt()) > times
		say(object{"event": "message", "consumer": in.Name, "success": success, "message": described(view)})
		if _, held := view.GetProperties()["hold"]; held {
			<-released
		}
		if success {
			return rmq.SUCCESS
		}
		return rmq.FAILURE
	}
	client, err := rmq.NewPushConsumer(config(in), rmq.WithPushSubscriptionExpressions(subscriptions(in)),
		rmq.WithPushAwaitDuration(5*time.Second),
		rmq.WithPushMessageListener(&rmq.FuncMessageListener{Consume: consume}))
	if err != nil {
		return err
	}
	keep(in.Name, client)
	return client.Start()
}

func described(view *rmq.MessageView) object {
	properties := map[string]string{}
	for name, value := range view.GetProperties() {
		properties[name] = value
	}
	if view.GetTag() != nil {
		properties["TAGS"] = *view.GetTag()
	}
	if view.GetMessageGroup() != nil {
		properties["__SHARDINGKEY"] = *view.GetMessageGroup()
	}
	if len(view.GetKeys()) > 0 {
		properties["KEYS"] = strings.Join(view.GetKeys(), " ")
	}
	return object{
		"topic":           view.GetTopic(),
		"body64":          base64.StdEncoding.EncodeToString(view.GetBody()),
		"msg_id":          view.GetMessageId(),
		"reconsume_times": view.GetDeliveryAttempt() - 1,
		"properties":      properties,
	}
}
