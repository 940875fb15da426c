package main

import (
	"encoding/base64"
	"fmt"
	"strconv"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// input holds the arguments of every command; each uses its own few.
type input struct {
	ID            int            `json:"id"`
	Do            string         `json:"do"`
	Name          string         `json:"name"`
	Namesrv       string         `json:"namesrv"`
	Group         string         `json:"group"`
	Producer      string         `json:"producer"`
	Consumer      string         `json:"consumer"`
	Mode          string         `json:"mode"`
	Messages      []outgoing     `json:"messages"`
	Message       outgoing       `json:"message"`
	Queue         *int           `json:"queue"`
	Shard         string         `json:"shard"`
	Transactional bool           `json:"transactional"`
	Orderly       bool           `json:"orderly"`
	Result        string         `json:"result"`
	DelayMs       int64          `json:"delay_ms"`
	ReplyBy       string         `json:"reply_by"`
	TimeoutMs     int64          `json:"timeout_ms"`
	Subscriptions []subscription `json:"subscriptions"`
	Set           map[string]any `json:"set"`
	Topic         string         `json:"topic"`
	Broker        string         `json:"broker"`
	Offset        int64          `json:"offset"`
	Count         int            `json:"count"`
	AccessKey     string         `json:"access_key"`
	SecretKey     string         `json:"secret_key"`
}

type subscription struct {
	Topic      string `json:"topic"`
	Expression string `json:"expression"`
	Type       string `json:"type"`
}

type outgoing struct {
	Topic      string            `json:"topic"`
	Body64     string            `json:"body64"`
	Tags       string            `json:"tags"`
	Keys       string            `json:"keys"`
	Flag       int32             `json:"flag"`
	Delay      int               `json:"delay"`
	Properties map[string]string `json:"properties"`
}

func (given outgoing) message() (*primitive.Message, error) {
	body, err := base64.StdEncoding.DecodeString(given.Body64)
	if err != nil {
		return nil, err
	}
	made := primitive.NewMessage(given.Topic, body)
	made.Flag = given.Flag
	if given.Tags != "" {
		made.WithTag(given.Tags)
	}
	if given.Keys != "" {
		made.WithKeys([]string{given.Keys})
	}
	if given.Delay > 0 {
		made.WithDelayTimeLevel(given.Delay)
	}
	for key, value := range given.Properties {
		made.WithProperty(key, value)
	}
	return made, nil
}

func messages(given []outgoing) ([]*primitive.Message, error) {
	made := make([]*primitive.Message, 0, len(given))
	for _, each := range given {
		one, err := each.message()
		if err != nil {
			return nil, err
		}
		made = append(made, one)
	}
	return made, nil
}

func received(message *primitive.MessageExt) object {
	said := object{
		"topic":           message.Topic,
		"body64":          base64.StdEncoding.EncodeToString(message.Body),
		"flag":            message.Flag,
		"properties":      message.GetProperties(),
		"transaction_id":  message.TransactionId,
		"offset":          message.QueueOffset,
		"position":        message.CommitLogOffset,
		"msg_id":          message.MsgId,
		"offset_msg_id":   message.OffsetMsgId,
		"store_size":      message.StoreSize,
		"sys_flag":        message.SysFlag,
		"body_crc":        message.BodyCRC,
		"born_ms":         message.BornTimestamp,
		"store_ms":        message.StoreTimestamp,
		"born_host":       message.BornHost,
		"store_host":      message.StoreHost,
		"reconsume_times": message.ReconsumeTimes,
		"prepared_offset": message.PreparedTransactionOffset,
	}
	if message.Queue != nil {
		said["broker"] = message.Queue.BrokerName
		said["queue"] = message.Queue.QueueId
	}
	return said
}

var statusNames = map[primitive.SendStatus]string{
	primitive.SendOK:                "SEND_OK",
	primitive.SendFlushDiskTimeout:  "FLUSH_DISK_TIMEOUT",
	primitive.SendFlushSlaveTimeout: "FLUSH_SLAVE_TIMEOUT",
	primitive.SendSlaveNotAvailable: "SLAVE_NOT_AVAILABLE",
	primitive.SendUnknownError:      "UNKNOWN",
}

func sent(result *primitive.SendResult) object {
	said := object{
		"status":         statusNames[result.Status],
		"msg_id":         result.MsgID,
		"offset_msg_id":  result.OffsetMsgID,
		"offset":         result.QueueOffset,
		"transaction_id": result.TransactionID,
		"region":         result.RegionID,
		"trace_on":       result.TraceOn,
	}
	if result.MessageQueue != nil {
		said["broker"] = result.MessageQueue.BrokerName
		said["queue"] = result.MessageQueue.QueueId
	}
	return said
}

// failTimes is the user property by which a message asks its listener to fail.
func failTimes(message *primitive.MessageExt) int32 {
	times, err := strconv.Atoi(message.GetProperty("fail_times"))
	if err != nil {
		return 0
	}
	return int32(times)
}

func unknown(kind, name string) error {
	return fmt.Errorf("no %s is called %q", kind, name)
}
