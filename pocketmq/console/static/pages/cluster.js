/* Cluster: brokers by cluster, and the name servers that know them. */

import { get } from "../api.js";
import { data } from "../dom.js";
import { card, empty, head, table, tag } from "../table.js";
import { t } from "../text.js";
import { brokers } from "./overview.js";

export default {
  title: "cluster",
  live: 5000,
  load: (page, signal) => get("/api/cluster", signal),
  view(page, found) {
    return [
      head(t("cluster"), { about: t("cluster.about") }),
      found.clusters.length === 0 && card(null, empty(t("brokers.none"), t("brokers.none.do"))),
      found.clusters.map((cluster) => {
        const shown = brokers(cluster.brokers);
        shown.querySelector("h2").textContent = t("cluster.name", { name: cluster.cluster });
        return shown;
      }),
      card(
        t("nameServers"),
        table({
          caption: t("nameServers"),
          columns: [{ label: t("address") }, { label: t("state") }],
          rows: found.nameServers.map((each) => [
            data(each.address, { class: "mono" }),
            each.reachable ? tag(t("reachable"), "good") : [tag(t("unreachable"), "bad"), " ", data(each.error ?? "")],
          ]),
        }),
      ),
    ];
  },
};
