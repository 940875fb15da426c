/* A group's queues with their offsets, and the dialogs that move these. */

import { change, path } from "../api.js";
import { form } from "../dialog.js";
import { code, data, h } from "../dom.js";
import { table, topicLink } from "../table.js";
import { moment, number, t } from "../text.js";

/** Which member has which queue, how far the group is, what waits. */
export function queueTable(caption, list, { topics = true } = {}) {
  const columns = [
    { label: t("queue") }, { label: t("owner") }, { label: t("offset.broker"), number: true },
    { label: t("offset.group"), number: true }, { label: t("lag"), number: true }, { label: t("lastConsumed") },
  ];
  return table({
    caption,
    columns,
    rows: list.map((each) => ({
      key: `${each.topic} ${each.broker} ${each.queueId}`,
      cells: [
        [topics && [topicLink(each.topic), " "], data(`${each.broker} ${each.queueId}`)],
        each.owner ? code(each.owner) : h("span", { class: "soft" }, t(each.shared ? "shared" : "noMember")),
        number(each.brokerOffset),
        number(each.consumerOffset),
        number(each.lag),
        moment(each.lastTimestamp),
      ],
    })),
  });
}

const topicField = (topics) =>
  topics.length
    ? { name: "topic", label: t("topic"), type: "select", choices: topics.map((each) => [each, each]) }
    : { name: "topic", label: t("topic"), required: true };

const own = (topics) => {
  const found = topics.filter((each) => !each.startsWith("%RETRY%"));
  return found.length ? found : topics;
};

export async function resetOffsets(page, group, topics) {
  const choices = ["earliest", "latest", "time"].map((each) => [each, t(`reset.${each}`)]);
  const found = await form({
    title: t("reset.title", { group }),
    intro: t("reset.about"),
    label: t("next"),
    fields: [
      topicField(own(topics)),
      { name: "to", label: t("reset.where"), type: "radio", choices, value: "time" },
      { name: "at", label: t("reset.at"), type: "time", value: Date.now() - 3_600_000 },
    ],
    submit: ({ topic, to, at }) =>
      change("POST", path("/api/groups/{}/reset", [group]), { topic, to: to === "time" ? at : to }, { title: t("reset.title", { group }), label: t("reset") }),
  });
  await page.act(() => found, t("reset.done"));
}

export async function skip(page, group, topics) {
  const found = await form({
    title: t("skip.title", { group }),
    intro: t("skip.about"),
    label: t("next"),
    fields: [topicField(own(topics))],
    submit: ({ topic }) => change("POST", path("/api/groups/{}/skip", [group]), { topic }, { title: t("skip.title", { group }), label: t("skip") }),
  });
  await page.act(() => found, t("reset.done"));
}

export async function clone(page, group, topics) {
  const found = await form({
    title: t("clone.title", { group }),
    intro: t("clone.about"),
    label: t("next"),
    fields: [{ name: "from", label: t("clone.from"), required: true }, topicField(own(topics))],
    submit: (values) => change("POST", path("/api/groups/{}/clone", [group]), values, { title: t("clone.title", { group }), label: t("clone") }),
  });
  await page.act(() => found, t("reset.done"));
}

export async function setOffset(page, group, list) {
  const choices = list.map(({ topic, broker, queueId }, index) => [index, `${topic} ${broker} ${queueId}`]);
  const found = await form({
    title: t("setOffset"),
    label: t("next"),
    fields: [
      { name: "queue", label: t("queue"), type: "select", choices },
      { name: "offset", label: t("offset"), type: "number", min: 0, required: true },
    ],
    submit: ({ queue, offset }) => {
      const { topic, broker, queueId } = list[Number(queue)];
      return change("POST", path("/api/groups/{}/offset", [group]), { topic, broker, queueId, offset }, { title: t("setOffset") });
    },
  });
  await page.act(() => found, t("reset.done"));
}
