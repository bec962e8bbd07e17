// The files of a node, as the answers of routes/nodes.ts: current, with ETag, as JSON or packed.

import type { DownloadAnswer } from "../../protocol/download.ts";
import { filesFor, readTogether, type NodeFiles } from "../config/views.ts";
import type { OrganizationCall } from "../http/route.ts";
import { revokedError } from "../nodes/orders.ts";
import type { Services } from "../services.ts";
import { isOnline, type NodeRecord } from "../store/nodes.ts";
import { inTurnOf } from "./heavy.ts";

type Headers = Record<string, string>;

export function headersOf({ etag, configVersion }: NodeFiles): Headers {
  return { ETag: etag, "X-Config-Version": String(configVersion), "Cache-Control": "private, no-cache" };
}

export function hasAlready({ request }: OrganizationCall, { etag }: NodeFiles): boolean {
  return matches(request.headers.get("If-None-Match"), etag);
}

/** RFC 9110, section 13.1.2: a list of tags for weak comparison, or `*`. */
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
  const shown = reports.onto(node);
  const isHeard = isOnline(shown, system.now(), changes);
  const files = await filesFor(services, view, shown, isHeard, (work) => inTurnOf(services, call, work));
  return { node: shown, files };
}

/** The text is made here, within the caller's turn: of a large configuration it takes milliseconds. */
export function jsonReply(body: unknown, headers: Headers) {
  return { raw: new TextEncoder().encode(JSON.stringify(body)), headers };
}

export async function tarReply({ packed }: Services, files: NodeFiles, headers: Headers) {
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
