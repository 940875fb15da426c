/* Replicas: masters, slaves, how far they are, and a change of roles. */

import { change, get, path } from "../api.js";
import { data, h } from "../dom.js";
import { spoken } from "../spoken.js";
import { card, doer, empty, figures, head, link, table, tag } from "../table.js";
import { duration, moment, named, number, size, t } from "../text.js";

export default {
  title: "replicas",
  live: 3000,
  load: (page, signal) => get("/api/replicas", signal),
  view(page, { items, elections }) {
    const slaves = items.flatMap((each) => (each.status?.haConnectionInfo ?? []).map((one) => ({ master: each, ...one })));
    return [
      head(t("replicas"), { about: t("replicas.about") }),
      figures(counts(items, slaves)),
      card(t("brokers"), items.map(trouble), items.length ? brokers(page, items) : empty(t("brokers.none"), t("brokers.none.do"))),
      card(t("replicas.slaves"), slaves.length ? connections(slaves) : empty(t("replicas.none"), t("replicas.none.do"), { command: "pocketmq up --replicas 2" })),
      elections.length > 0 && card(t("elections"), h("p", { class: "soft" }, t("elections.about")), timeline(elections)),
    ];
  },
};

function counts(items, slaves) {
  const wrong = items.filter(({ status }) => !status || status.trouble).length;
  const late = Math.max(0, ...slaves.map(({ lagMs }) => lagMs ?? 0));
  return [
    [t("replicas.masters"), number(items.filter(({ status, brokerId }) => status?.master ?? !brokerId).length)],
    [t("replicas.slaves"), number(slaves.length), t("replicas.inSync", { count: number(slaves.filter(({ inSync }) => inSync).length) })],
    [t("replicas.late"), slaves.length ? duration(late) : "–"],
    [t("replicas.trouble"), number(wrong)],
  ];
}

function brokers(page, items) {
  return table({
    caption: t("brokers"),
    columns: [
      { label: t("broker") }, { label: t("role") }, { label: t("state") },
      { label: t("replicas.end"), number: true }, { label: t("replicas.behind"), number: true },
      { label: t("replicas.metadata"), number: true }, { label: t("actions"), quiet: true },
    ],
    rows: items.map((each) => {
      const { status } = each;
      const follows = status?.haClientRuntimeInfo;
      return {
        key: `${each.broker} ${each.brokerId}`,
        cells: [
          // The address below the name: a column of its own would push the buttons out of sight.
          [link("/broker", { name: each.broker, id: each.brokerId || null }, each.broker), ` ${each.brokerId}`, h("div", {}, data(each.address, { class: "mono soft" }))],
          data(status?.role ?? named("role", each.brokerId ? "SLAVE" : "MASTER")),
          state(each),
          number(status?.masterCommitLogMaxOffset),
          // Of two logs that have parted none is behind the other.
          follows?.isActivated ? size(follows.behind) : "–",
          follows?.metadataAgeMs >= 0 ? duration(follows.metadataAgeMs) : "–",
          status?.role && h("span", { class: "row" }, buttons(page, each)),
        ],
      };
    }),
  });
}

function state({ status, error }) {
  if (!status) return [tag(t("replicas.unknown")), " ", data(error ?? "")];
  if (status.trouble) return tag(t("replicas.trouble"), "bad");
  const text = status.master ? t("replicas.inSync", { count: number(status.inSyncSlaveNums) }) : t("replicas.follows");
  return tag(text, "good");
}

/* A sentence or two in a column of their own would push the buttons out of sight. */
function trouble({ broker, brokerId, status }) {
  return status?.trouble && h("p", { key: `${broker} ${brokerId}` }, tag(`${broker} ${brokerId}`, "bad"), " ", spoken(status.trouble));
}

function buttons(page, each) {
  const act = (name, danger) => doer(page, t(`replicas.${name}`), () => role(page, each, name), { danger });
  return each.status.master ? [act("demote", true), act("resync", false)] : [act("promote", true), act("resync", true)];
}

function role(page, each, act) {
  const label = t(`replicas.${act}`);
  const body = { act, brokerId: each.brokerId };
  return page.act(
    () => change("PUT", path("/api/brokers/{}/role", [each.broker]), body, { title: label, label, danger: act !== "promote" }),
    () => t("replicas.done"),
  );
}

/** Elections by a controller, the newest first; a bar says how long no broker led. */
function timeline(elections) {
  const longest = Math.max(1, ...elections.map(({ gapMs }) => gapMs ?? 0));
  return table({
    caption: t("elections"),
    columns: [
      { label: t("time") }, { label: t("broker") }, { label: t("elections.epoch"), number: true },
      { label: t("elections.master") }, { label: t("elections.gap"), number: true }, { label: t("elections.length"), quiet: true },
    ],
    rows: elections.map(({ time, broker, epoch, masterId, master, gapMs }) => ({
      key: `${broker} ${epoch}`,
      cells: [
        moment(time), data(broker), number(epoch),
        [data(masterId ?? ""), h("div", {}, data(master, { class: "mono soft" }))],
        gapMs == null || gapMs < 0 ? "–" : duration(gapMs),
        gapMs > 0 && h("svg", { class: "gap", viewBox: "0 0 100 12", "aria-hidden": "true", preserveAspectRatio: "none" }, h("rect", { class: "warn", x: 0, y: 0, height: 12, width: (gapMs / longest) * 100 })),
      ],
    })),
  });
}

function connections(slaves) {
  return table({
    caption: t("replicas.slaves"),
    columns: [
      { label: t("address") }, { label: t("replicas.of") }, { label: t("state") }, { label: t("replicas.acked"), number: true },
      { label: t("replicas.behind"), number: true }, { label: t("replicas.late"), number: true }, { label: t("replicas.heard"), number: true },
    ],
    rows: slaves.map((each) => ({
      key: `${each.master.address} ${each.addr}`,
      cells: [
        data(each.addr, { class: "mono" }),
        data(each.master.broker),
        each.refused
          ? [tag(t("replicas.refused"), "bad"), " ", spoken(each.refused)]
          : tag(t(each.inSync ? "replicas.isInSync" : "replicas.notInSync"), each.inSync ? "good" : "warn"),
        number(each.slaveAckOffset),
        size(each.diff),
        each.lagMs >= 0 ? duration(each.lagMs) : "–",
        each.heardAgeMs >= 0 ? duration(each.heardAgeMs) : "–",
      ],
    })),
  });
}
