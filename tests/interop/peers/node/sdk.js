'use strict';

// The SDK of RocketMQ 5, rocketmq-client-nodejs; the commands are those of tests/interop/sdks.py.

const {
  ConsumeResult, FilterExpression, Producer, PushConsumer, SimpleConsumer,
} = require('rocketmq-client-nodejs');
const { say, serve } = require('./lines');

const TAG = 1;
const SQL = 2;
const RESOLUTIONS = { COMMIT: 1, ROLLBACK: 2 };

const clients = new Map();
const received = [];
let release;
const released = new Promise(resolve => { release = resolve; });

function configuration(given) {
  return {
    endpoints: given.endpoint,
    namespace: '',
    sslEnabled: Boolean(given.tls),
    ...(given.key ? { sessionCredentials: { accessKey: given.key, accessSecret: given.secret } } : {}),
  };
}

function subscriptions(given) {
  return new Map(given.subscriptions.map(each => [
    each.topic, new FilterExpression(each.expression, each.sql ? SQL : TAG),
  ]));
}

function described(view) {
  const properties = Object.fromEntries(view.properties);
  if (view.tag !== undefined) {
    properties.TAGS = view.tag;
  }
  if (view.messageGroup !== undefined) {
    properties.__SHARDINGKEY = view.messageGroup;
  }
  if (view.keys.length) {
    properties.KEYS = view.keys.join(' ');
  }
  if (view.corrupted) {
    properties.corrupted = 'true';
  }
  return {
    topic: view.topic,
    body64: view.body.toString('base64'),
    msg_id: view.messageId,
    reconsume_times: view.deliveryAttempt - 1,
    properties,
  };
}

function message(given) {
  return {
    topic: given.topic,
    body: Buffer.from(given.body),
    tag: given.tag,
    keys: given.key ? [ given.key ] : [],
    messageGroup: given.shard,
    properties: new Map(Object.entries(given.properties || {})),
    ...(given.delay_ms ? { deliveryTimestamp: new Date(Date.now() + given.delay_ms) } : {}),
  };
}

async function started(name, client) {
  clients.set(name, client);
  await client.startup();
}

serve({
  async producer(given) {
    await started(given.name, new Producer({
      ...configuration(given),
      topics: given.topics,
      checker: {
        async check(view) {
          say({ event: 'check', producer: given.name, message: described(view) });
          return RESOLUTIONS[view.properties.get('check') || 'COMMIT'];
        },
      },
    }));
  },

  async send(given) {
    const producer = clients.get(given.producer);
    const results = [];
    for (const each of given.messages) {
      const transaction = each.end && producer.beginTransaction();
      const receipt = await producer.send(message(each), transaction);
      if (each.end === 'COMMIT') {
        await transaction.commit();
      } else if (each.end === 'ROLLBACK') {
        await transaction.rollback();
      }
      results.push({ msg_id: receipt.messageId, recall_handle: receipt.recallHandle });
    }
    return results;
  },

  async recall(given) {
    const receipt = await clients.get(given.producer).recallMessage(given.topic, given.handle);
    return receipt.messageId;
  },

  async simple(given) {
    await started(given.name, new SimpleConsumer({
      ...configuration(given),
      consumerGroup: given.group,
      subscriptions: subscriptions(given),
      awaitDuration: given.await_ms,
    }));
  },

  async receive(given) {
    const views = await clients.get(given.consumer).receive(given.count, given.invisible_ms);
    return views.map(view => ({ ...described(view), position: received.push(view) - 1 }));
  },

  async ack(given) {
    await clients.get(given.consumer).ack(received[given.position]);
  },

  async change(given) {
    await clients.get(given.consumer).changeInvisibleDuration(received[given.position], given.invisible_ms);
  },

  async push(given) {
    await started(given.name, new PushConsumer({
      ...configuration(given),
      consumerGroup: given.group,
      subscriptions: subscriptions(given),
      messageListener: {
        async consume(view) {
          const success = view.deliveryAttempt > Number(view.properties.get('fail_times') || 0);
          say({ event: 'message', consumer: given.name, success, message: described(view) });
          if (view.properties.has('hold')) {
            await released;
          }
          return success ? ConsumeResult.SUCCESS : ConsumeResult.FAILURE;
        },
      },
    }));
  },

  async release() {
    release();
  },

  async shutdown(given) {
    const client = clients.get(given.name);
    clients.delete(given.name);
    if (client) {
      await client.shutdown();
    }
    return Boolean(client);
  },
});
