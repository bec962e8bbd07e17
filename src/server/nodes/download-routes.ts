// The download of a node's files: which files it gets, and the replies that carry them. call-routes.ts has the handlers for nodes;
// routes.ts shows the configuration to administrators.

import type { DownloadAnswer } from "../../protocol/download.ts";
import { readTogether } from "../config/organization-views.ts";
import { filesFor, type NodeFiles } from "../config/node-files.ts";
import type { OrganizationCall } from "../http/route.ts";
import { revokedError } from "./contact/orders.ts";
import type { Services } from "../services.ts";
import { isOnline, type NodeRecord } from "../store/nodes.ts";
import { inTurnOf } from "../pipeline.ts";

/** The reply to a download: the files, or 304 if the node has them already. */
export async function download(services: Services, call: OrganizationCall, format: "json" | "tar") {
  const { node, files } = await currentFiles(services, call);
  const headers = headersOf(files);
  if (hasAlready(call, files)) {
    // The node has these files already, so it has applied the current version.
    if (call.caller.kind === "node") {
      await services.sentFiles.noteKept(node, files);
      await services.checkins.takeApplied(call.org, call.id(), files.configVersion);
    }
    return { status: 304 as const, headers };
  }
  // One such piece of work at a time: with a large configuration it takes milliseconds (http/heavy-work.ts).
  const reply = await inTurnOf(services, call, async () =>
    format === "tar" ? tarReply(services, files, headers) : jsonReply(await answerFor(call, files), headers),
  );
  // Outside of the turn: notes of nodes that download at once share a commit.
  if (call.caller.kind === "node") await services.sentFiles.note(node, files);
  return reply;
}

type Headers = Record<string, string>;

export function headersOf({ etag, configVersion }: NodeFiles): Headers {
  return { ETag: etag, "X-Config-Version": String(configVersion), "Cache-Control": "private, no-cache" };
}

/** Whether the request names these files as those that the caller has (`If-None-Match`). */
export function hasAlready({ request }: OrganizationCall, { etag }: NodeFiles): boolean {
  return matches(request.headers.get("If-None-Match"), etag);
}

/** The files, with only those seals that the node lacks: it names the ones that it holds among its tags. */
async function answerFor({ request }: OrganizationCall, { sealTags, answer }: NodeFiles) {
  const { seals = [], ...others } = await answer();
  const tags = request.headers.get("If-None-Match");
  const lastHeld = sealTags.findLastIndex((tag) => matches(tags, tag));
  const missing = seals.slice(lastHeld + 1);
  return missing.length === 0 ? others : { ...others, seals: missing };
}

/** Whether the header `If-None-Match` holds the tag: a list of tags for weak comparison, or `*` (RFC 9110, section 13.1.2). */
function matches(header: string | null, etag: string): boolean {
  const tags = (header ?? "").split(",").map((tag) => tag.trim().replace(/^W\//, ""));
  return tags.includes(etag) || tags.includes("*");
}

/** The node's current files. Certificates that are due are renewed first. */
export async function currentFiles(
  services: Services,
  call: OrganizationCall,
): Promise<{ node: NodeRecord; files: NodeFiles }> {
  const { db, system, views, changes, renewals, reports } = services;
  const read = async () => {
    const found = await readTogether(db, views, call.org.id, call.id());
    if (found.node.state === "revoked") throw await revokedError(services, call.org, found.node);
    return found;
  };
  let { view, node } = await read();
  if (node.renewAt !== null && node.renewAt <= system.now()) {
    await renewals.ensure(call.org.id, node.id, { wait: true });
    ({ view, node } = await read());
  }
  // With what the node reported and is not written yet.
  const shown = reports.onto(node);
  const online = isOnline(shown, system.now(), changes);
  const files = await filesFor(services, view, shown, online, (work) => inTurnOf(services, call, work));
  return { node: shown, files };
}

/** The text is created within the caller's turn: that of a large configuration takes milliseconds. */
export function jsonReply(body: unknown, headers: Headers) {
  return { raw: new TextEncoder().encode(JSON.stringify(body)), headers };
}

/** The files as .tar.gz, which is kept for a while: nodes with equal files share it. */
async function tarReply({ packed }: Services, files: NodeFiles, headers: Headers) {
  const key = `${files.etag} ${files.configVersion}`;
  let raw = packed.get(key);
  if (raw === undefined) {
    raw = await pack(await files.answer());
    packed.set(key, raw, raw.length);
  }
  return { raw, headers: { ...headers, "Content-Type": "application/gzip" } };
}

async function pack(answer: DownloadAnswer): Promise<Uint8Array<ArrayBuffer>> {
  const files = Object.fromEntries(
    Object.entries(answer.files).filter((entry): entry is [string, string] => entry[1] !== undefined),
  );
  return Uint8Array.from(await new Bun.Archive(files, { compress: "gzip" }).bytes());
}
