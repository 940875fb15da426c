// The SDK of RocketMQ 5 for Rust; the commands are those of tests/interop/sdks.py, as far as it has them.
//
// A line in is {"id": n, "do": "command", ...}; a line out is {"id": n, "ok": value}, {"id": n, "error": {...}} or, unasked,
// {"event": "name", ...}. Commands run side by side. The end of standard input ends the process.
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::prelude::{Engine, BASE64_STANDARD};
use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::{MessageBuilder, MessageView};
use rocketmq::model::transaction::{Transaction, TransactionResolution};
use rocketmq::{Producer, SimpleConsumer};
use serde_json::{json, Value};
use tokio::io::{AsyncBufReadExt, BufReader};

type Answer = Result<Value, Box<dyn std::error::Error + Send + Sync>>;

struct Simple {
    consumer: SimpleConsumer,
    subscriptions: Vec<(String, FilterExpression)>,
}

#[derive(Default)]
struct Clients {
    producers: HashMap<String, Arc<Producer>>,
    simple: HashMap<String, Arc<Simple>>,
    received: Vec<Arc<MessageView>>,
}

type Shared = Arc<Mutex<Clients>>;

#[tokio::main]
async fn main() {
    let clients = Shared::default();
    println!("{}", json!({"event": "ready"}));
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let clients = clients.clone();
        let asked: Value = serde_json::from_str(&line).expect("a request");
        tokio::spawn(async move {
            let id = asked["id"].clone();
            match answer(asked, clients).await {
                Ok(value) => println!("{}", json!({"id": id, "ok": value})),
                Err(error) => {
                    let failure = json!({"class": "error", "message": error.to_string(), "code": null});
                    println!("{}", json!({"id": id, "error": failure}));
                }
            }
        });
    }
    std::process::exit(0);
}

fn text(given: &Value) -> String {
    given.as_str().unwrap_or("").to_string()
}

async fn answer(asked: Value, clients: Shared) -> Answer {
    let named = text(&asked["name"]);
    match asked["do"].as_str().unwrap_or("") {
        "producer" => {
            let producer = start_producer(&asked).await?;
            clients.lock().unwrap().producers.insert(named, Arc::new(producer));
        }
        "send" => {
            let name = text(&asked["producer"]);
            let producer = clients.lock().unwrap().producers.get(&name).cloned().ok_or("no such producer")?;
            return send(&producer, &asked).await;
        }
        "simple" => {
            let simple = start_simple(&asked).await?;
            clients.lock().unwrap().simple.insert(named, Arc::new(simple));
        }
        "receive" => {
            let simple = simple_of(&clients, &asked)?;
            return receive(&simple, &asked, &clients).await;
        }
        "ack" => {
            let simple = simple_of(&clients, &asked)?;
            let place = asked["position"].as_u64().unwrap_or(0) as usize;
            let view = clients.lock().unwrap().received[place].clone();
            simple.consumer.ack(view.as_ref()).await?;
        }
        "shutdown" => {
            let (producer, simple) = {
                let mut known = clients.lock().unwrap();
                (known.producers.remove(&named), known.simple.remove(&named))
            };
            // One that is in use still is let go by whoever uses it.
            if let Some(Ok(producer)) = producer.map(Arc::try_unwrap) {
                producer.shutdown().await?;
            }
            if let Some(Ok(simple)) = simple.map(Arc::try_unwrap) {
                simple.consumer.shutdown().await?;
            }
        }
        other => return Err(format!("the Rust SDK has no {other}").into()),
    }
    Ok(Value::Null)
}

fn simple_of(clients: &Shared, asked: &Value) -> Result<Arc<Simple>, String> {
    let name = text(&asked["consumer"]);
    clients.lock().unwrap().simple.get(&name).cloned().ok_or_else(|| "no such consumer".to_string())
}

fn option(asked: &Value) -> ClientOption {
    let mut made = ClientOption::default();
    made.set_access_url(text(&asked["endpoint"]));
    made.set_enable_tls(asked["tls"].as_bool().unwrap_or(false));
    if let Some(key) = asked["key"].as_str() {
        made.set_access_key(key);
        made.set_secret_key(text(&asked["secret"]));
    }
    if let Some(await_ms) = asked["await_ms"].as_u64() {
        made.set_long_polling_timeout(Duration::from_millis(await_ms));
    }
    made
}

async fn start_producer(asked: &Value) -> Result<Producer, Box<dyn std::error::Error + Send + Sync>> {
    let mut made = ProducerOption::default();
    made.set_topics(asked["topics"].as_array().unwrap().iter().map(text).collect::<Vec<_>>());
    let name = text(&asked["name"]);
    let check = move |_: String, view: MessageView| {
        println!("{}", json!({"event": "check", "producer": name, "message": described(&view)}));
        match view.properties().get("check").map(String::as_str) {
            Some("ROLLBACK") => TransactionResolution::ROLLBACK,
            _ => TransactionResolution::COMMIT,
        }
    };
    let mut producer = Producer::new_transaction_producer(made, option(asked), Box::new(check))?;
    producer.start().await?;
    Ok(producer)
}

async fn send(producer: &Producer, asked: &Value) -> Answer {
    let mut results = Vec::new();
    for each in asked["messages"].as_array().unwrap() {
        let mut builder = MessageBuilder::builder()
            .set_topic(text(&each["topic"]))
            .set_body(text(&each["body"]).into_bytes());
        if let Some(tag) = each["tag"].as_str() {
            builder = builder.set_tag(tag);
        }
        if let Some(key) = each["key"].as_str() {
            builder = builder.set_keys(vec![key]);
        }
        if let Some(shard) = each["shard"].as_str() {
            builder = builder.set_message_group(shard);
        }
        if let Some(delay_ms) = each["delay_ms"].as_i64() {
            let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() as i64;
            builder = builder.set_delivery_timestamp(now + delay_ms / 1_000);
        }
        if let Some(properties) = each["properties"].as_object() {
            let pairs: HashMap<String, String> = properties.iter().map(|(name, value)| (name.clone(), text(value))).collect();
            builder = builder.set_properties(pairs);
        }
        let Some(end) = each["end"].as_str() else {
            let receipt = producer.send(builder.build()?).await?;
            results.push(json!({"msg_id": receipt.message_id(), "recall_handle": null}));
            continue;
        };
        let transaction = producer.send_transaction_message(builder.enable_transaction().build()?).await?;
        results.push(json!({"msg_id": transaction.message_id(), "recall_handle": null}));
        match end {
            "COMMIT" => transaction.commit().await?,
            "ROLLBACK" => transaction.rollback().await?,
            _ => {}
        }
    }
    Ok(Value::from(results))
}

async fn start_simple(asked: &Value) -> Result<Simple, Box<dyn std::error::Error + Send + Sync>> {
    let mut made = SimpleConsumerOption::default();
    made.set_consumer_group(text(&asked["group"]));
    let mut subscriptions = Vec::new();
    for each in asked["subscriptions"].as_array().unwrap() {
        let kind = if each["sql"].as_bool().unwrap_or(false) { FilterType::Sql } else { FilterType::Tag };
        subscriptions.push((text(&each["topic"]), FilterExpression::new(kind, text(&each["expression"]))));
    }
    made.set_topics(subscriptions.iter().map(|(topic, _)| topic.clone()).collect::<Vec<_>>());
    let mut consumer = SimpleConsumer::new(made, option(asked))?;
    consumer.start().await?;
    Ok(Simple { consumer, subscriptions })
}

async fn receive(simple: &Simple, asked: &Value, clients: &Shared) -> Answer {
    let invisible = Duration::from_millis(asked["invisible_ms"].as_u64().unwrap_or(60_000));
    let count = asked["count"].as_i64().unwrap_or(16) as i32;
    let mut found = Vec::new();
    for (topic, expression) in &simple.subscriptions {
        let views = match simple.consumer.receive_with(topic, expression, count, invisible).await {
            Err(error) if error.to_string().contains("no new message") => Vec::new(),
            other => other?,
        };
        let mut known = clients.lock().unwrap();
        for view in views {
            let mut said = described(&view);
            said["position"] = json!(known.received.len());
            known.received.push(Arc::new(view));
            found.push(said);
        }
    }
    Ok(Value::from(found))
}

fn described(view: &MessageView) -> Value {
    let mut properties = view.properties().clone();
    if let Some(tag) = view.tag() {
        properties.insert("TAGS".to_string(), tag.to_string());
    }
    if let Some(group) = view.message_group() {
        properties.insert("__SHARDINGKEY".to_string(), group.to_string());
    }
    if !view.keys().is_empty() {
        properties.insert("KEYS".to_string(), view.keys().join(" "));
    }
    json!({
        "topic": view.topic(),
        "body64": BASE64_STANDARD.encode(view.body()),
        "msg_id": view.message_id(),
        "reconsume_times": view.delivery_attempt() - 1,
        "properties": properties,
    })
}
