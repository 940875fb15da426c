'use strict';

// The Node driver: ali-ons told what to do by JSON lines on standard input; see tests/interop/driver.py for the other end.

const httpclient = require('urllib');
const { Consumer, Message, Producer } = require('ali-ons');
const { say, serve } = require('./lines');

const producers = new Map();
const consumers = new Map();

function read(given) {
  const message = new Message(given.topic, given.tags, Buffer.from(given.body64, 'base64'));
  if (given.tags === undefined) {
    delete message.properties.TAGS;
  }
  message.flag = given.flag || 0;
  if (given.keys) {
    message.keys = [ given.keys ];
  }
  if (given.delay) {
    message.delayTimeLevel = given.delay;
  }
  Object.assign(message.properties, given.properties || {});
  return message;
}

function received(message, queue) {
  return {
    topic: message.topic,
    body64: (message.body || Buffer.alloc(0)).toString('base64'),
    flag: message.flag,
    properties: message.properties,
    broker: queue ? queue.brokerName : '',
    queue: message.queueId,
    offset: message.queueOffset,
    position: message.commitLogOffset,
    msg_id: message.properties.UNIQ_KEY || message.msgId,
    offset_msg_id: message.msgId,
    store_size: message.storeSize,
    sys_flag: message.sysFlag,
    body_crc: message.bodyCRC,
    born_ms: message.bornTimestamp,
    store_ms: message.storeTimestamp,
    born_host: message.bornHost,
    store_host: message.storeHost,
    reconsume_times: message.reconsumeTimes,
    prepared_offset: message.preparedTransactionOffset,
  };
}

function sent(result) {
  return {
    status: result.sendStatus,
    msg_id: result.msgId,
    offset_msg_id: result.msgId,
    broker: result.messageQueue.brokerName,
    queue: Number(result.messageQueue.queueId),
    offset: Number(result.queueOffset),
  };
}

const commands = {
  async producer(given) {
    const made = new Producer({
      httpclient,
      nameSrv: given.namesrv,
      producerGroup: given.group,
      instanceName: given.name,
      ...(given.set || {}),
    });
    made.on('error', error => console.error(error));
    await made.ready();
    producers.set(given.name, made);
  },

  async send(given) {
    if (given.mode && given.mode !== 'sync') {
      throw new Error(`ali-ons has no ${given.mode} send`);
    }
    const results = [];
    for (const each of given.messages) {
      results.push(sent(await producers.get(given.producer).send(read(each))));
    }
    return results;
  },

  async push_consumer(given) {
    const settings = { ...(given.set || {}) };
    const broadcast = settings.messageModel === 'BROADCASTING';
    delete settings.messageModel;
    const made = new Consumer({
      httpclient,
      nameSrv: given.namesrv,
      consumerGroup: given.group,
      instanceName: given.name,
      isBroadcast: broadcast,
      ...settings,
    });
    made.on('error', error => console.error(error));
    const state = { consumer: made, result: given.result || 'success' };
    for (const each of given.subscriptions) {
      const expression = each.type === 'SQL92'
        ? { expressionType: 'SQL92', subString: each.expression }
        : each.expression || '*';
      made.subscribe(each.topic, expression, async (message, queue) => {
        const times = Number(message.properties.fail_times || 0);
        const success = state.result !== 'later' && message.reconsumeTimes >= times;
        say({ event: 'message', consumer: given.name, success, message: received(message, queue) });
        return success ? undefined : Consumer.ACTION_RETRY;
      });
    }
    await made.ready();
    consumers.set(given.name, state);
  },

  async behave(given) {
    consumers.get(given.consumer).result = given.result;
  },

  async shutdown(given) {
    const producer = producers.get(given.name);
    const state = consumers.get(given.name);
    producers.delete(given.name);
    consumers.delete(given.name);
    if (producer) {
      await producer.close();
    }
    if (state) {
      await state.consumer.close();
    }
    return Boolean(producer || state);
  },
};

serve(commands);
