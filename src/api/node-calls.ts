// Calls by nodes: downloads, check-ins, reports. How a machine becomes a node is in registrations.ts. endpoint.ts explains the
// flags, such as `direct` and `held`.

import * as v from "valibot";
import { CheckinAnswer, CheckinRequest } from "../protocol/checkin.ts";
import { DownloadAnswer } from "../protocol/download.ts";
import { DrillReport } from "../protocol/updates/drill.ts";
import { UpdateReport } from "../protocol/updates/order.ts";
import { endpoint } from "./endpoint.ts";
import { filesHeaders, notModified } from "./values.ts";

export const nodeCallsApi = {
  download: endpoint({
    name: "nodes_download_config",
    method: "GET",
    path: "/api/org/{slug}/nodes/{id}/download_config/",
    access: "member",
    node: true,
    scope: "nodes",
    summary: "All files of a node; 304 if If-None-Match matches",
    query: v.strictObject({ format: v.optional(v.picklist(["json", "tar"]), "json") }),
    answers: {
      200: { description: "The files", schema: DownloadAnswer, headers: filesHeaders },
      304: notModified,
    },
    errors: ["node_revoked", "conflict", "payload_too_large"],
  }),
  checkin: endpoint({
    name: "nodes_checkin",
    method: "POST",
    path: "/api/org/{slug}/nodes/{id}/checkin/",
    access: "admin",
    node: true,
    direct: true,
    quiet: true,
    held: true,
    scope: "nodes",
    summary: "Report that the node is alive. `Prefer: wait=N` holds the answer until there is news",
    fresh: false,
    body: CheckinRequest,
    answers: { 200: { description: "News for the node", schema: CheckinAnswer } },
    errors: ["too_many_certificates", "node_revoked", "conflict"],
  }),
  reportUpdate: endpoint({
    name: "nodes_update_report",
    method: "POST",
    path: "/api/org/{slug}/nodes/{id}/update_report/",
    access: "admin",
    node: true,
    quiet: true,
    scope: "nodes",
    summary: "How far the node is with an update in rings",
    fresh: false,
    body: UpdateReport,
    answers: { 204: { description: "It is noted" } },
    errors: ["node_revoked", "conflict"],
  }),
  reportDrill: endpoint({
    name: "nodes_drill_report",
    method: "POST",
    path: "/api/org/{slug}/nodes/{id}/drill_report/",
    access: "admin",
    node: true,
    quiet: true,
    scope: "nodes",
    summary: "Which peers the node lost during a drill",
    fresh: false,
    body: DrillReport,
    answers: { 204: { description: "It is noted" } },
    errors: ["node_revoked", "conflict"],
  }),
};
