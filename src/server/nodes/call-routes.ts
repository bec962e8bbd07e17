// Handlers of src/api/node-calls.ts, which nodes call themselves. Users and service tokens may call them too.

import { given } from "../../base/given.ts";
import type { nodeCallsApi } from "../../api/node-calls.ts";
import type { CheckinAnswer, CheckinRequest } from "../../protocol/checkin.ts";
import type { DownloadAnswer } from "../../protocol/download.ts";
import { takeDrillReport } from "../rollout/drills.ts";
import { takeUpdateReport } from "../rollout/update-reports.ts";
import { noContent } from "../http/reply.ts";
import { actorOf } from "../audit/record.ts";
import { readTogether } from "../config/views.ts";
import { filesFor, type NodeFiles } from "../config/node-files.ts";
import type { Handlers } from "../http/attach.ts";
import type { OrganizationCall } from "../http/route.ts";
import { makeMove, revokedError } from "./contact/orders.ts";
import { elsewhereOf } from "./contact/lighthouse-address.ts";
import { endNode } from "./lifecycle/ephemeral.ts";
import { revokeNode } from "./lifecycle/revoke.ts";
import type { Services } from "../services.ts";
import { isOnline, type NodeRecord } from "../store/nodes.ts";
import { inTurnOf } from "../pipeline.ts";

export const nodeCallHandlers = (services: Services): Handlers<typeof nodeCallsApi> => ({
  async download(call, { format }) {
    const { node, files } = await currentFiles(services, call);
    const headers = headersOf(files);
    if (hasAlready(call, files)) {
      // The node has these files already, so it has applied the current version.
      if (call.caller.kind === "node")
        await services.checkins.takeApplied(call.org, call.id(), files.configVersion);
      return { status: 304, headers };
    }
    const reply = await inTurnOf(services, call, async () =>
      format === "tar"
        ? tarReply(services, files, headers)
        : jsonReply(await answerFor(call, files), headers),
    );
    // Outside of the turn: notes of nodes that download at once share a commit.
    if (call.caller.kind === "node") await services.sentFiles.note(node, files);
    return reply;
  },
  checkin(call, received) {
    const isNews = noteMachine(services, call, received);
    if (call.caller.kind === "node") services.addresses.noteCall(call.caller.nodeId, call.address);
    const input = withClockFinding(services, call, received);
    if (input.flows === undefined || call.caller.kind !== "node")
      return answerTo(services, call, input, isNews);
    // Beside everything else, so that a check-in with flows stays a plain one.
    const counted = services.flowReports.take(call.org, call.caller.nodeId, input.flows);
    return withFlows(answerTo(services, call, input, isNews), counted);
  },
  async update(call, report) {
    await takeUpdateReport(services, call.org.id, call.id(), report);
    return noContent;
  },
  async drill(call, report) {
    await takeDrillReport(services, call.org.id, call.id(), report);
    return noContent;
  },
});

function answerTo(
  services: Services,
  call: OrganizationCall,
  input: CheckinRequest,
  isNews: boolean,
): Answered | Promise<Answered> {
  if (call.isOwnCa && call.caller.kind === "node") return answerByOwnCa(services, call, input, isNews);
  if (input.leaving === true && call.caller.kind === "node") return leave(services, call, input);
  const isPlain = questions.every((each) => input[each] === undefined) && !services.clones.has(call.id());
  const known =
    isPlain && call.waitS === 0 ? services.checkins.atOnce(call.org, call.id(), input) : undefined;
  return known === undefined ? checkIn(services, call, input, isNews) : { body: known };
}

/** The answer says whether the flows of the check-in are stored. */
async function withFlows(
  answered: Answered | Promise<Answered>,
  counted: Promise<CheckinAnswer["flows"]>,
): Promise<Answered> {
  const [{ body }, flows] = await Promise.all([answered, counted]);
  return { body: { ...body, ...given({ flows }) } };
}

type Answered = { body: CheckinAnswer };
/** What a check-in may ask beside reporting the node's state. One that asks nothing is answered from memory. */
const questions = ["addresses", "probe", "paths", "relayed"] as const;
type Questions = Pick<CheckinRequest, (typeof questions)[number]>;

/**
 * For nodes that pinned the own CA. Only a document of the operator, signed by the order key, lets them trust another
 * one.
 */
async function answerByOwnCa(
  services: Services,
  call: OrganizationCall,
  input: CheckinRequest,
  isNews: boolean,
): Promise<Answered> {
  services.meters.ownCaCheckin();
  if (input.leaving === true) return leave(services, call, input);
  const reply = await checkIn(services, call, input, isNews);
  if (services.movesNodes !== true) return reply;
  return { body: { ...reply.body, move: await makeMove(services, call.org, services.publicUrl) } };
}

/** Nothing but the node's own token can end its membership here: an administrator deletes nodes, with a reason. */
async function leave(services: Services, call: OrganizationCall, input: CheckinRequest): Promise<Answered> {
  const answer = await services.checkins.checkin(call.org, call.id(), input);
  if (!(await endNode(services, call.org, call.id(), actorOf(call))))
    await revokeNode(services, call.org, call.id(), actorOf(call), "left the organization");
  return { body: { ...answer, left: true } };
}

/** True if this check-in shows that two machines use the node's keys. Only the node itself knows its machine. */
function noteMachine(
  { changes, clones }: Services,
  call: OrganizationCall,
  { machine }: CheckinRequest,
): boolean {
  const { org, caller, address } = call;
  if (caller.kind !== "node" || machine === undefined) return false;
  if (!clones.take({ orgId: org.id, nodeId: caller.nodeId, machine, address })) return false;
  // The other machine holds a poll.
  changes.wakeNode(org.id, caller.nodeId);
  return true;
}

/** A wrong clock becomes the finding of a node that reports no other one. Its own probes do not find it. */
function withClockFinding(
  { nodeClocks }: Services,
  call: OrganizationCall,
  request: CheckinRequest,
): CheckinRequest {
  const { org, caller } = call;
  if (caller.kind !== "node" || !nodeClocks.take({ org, nodeId: caller.nodeId }, request)) return request;
  return request.overlay_state === "running" ? { ...request, overlay_state: "clock_differs" } : request;
}

/** Replaces what the node reports: each of the two machines may report that it is well. */
function withCloneFinding(sent: CheckinRequest): CheckinRequest {
  const { overlay_state: state } = sent;
  return state === undefined || state === "stopped" ? sent : { ...sent, overlay_state: "cloned" };
}

/** `isNews`: the answer has news, so it is not held. */
async function checkIn(
  services: Services,
  call: OrganizationCall,
  input: CheckinRequest,
  isNews: boolean,
): Promise<Answered> {
  const { checkins, clones, db } = services;
  const { org, request, caller } = call;
  const { hasPeers, ...answers } = await answersTo(services, call, input);
  const waitS = isNews || hasPeers ? 0 : call.waitS;
  const isCloned = clones.has(call.id());
  const sent = isCloned ? withCloneFinding(input) : input;
  const isNewClone = () => !isCloned && clones.has(call.id());
  const answer =
    waitS === 0
      ? await checkins.checkin(org, call.id(), sent)
      : await checkins.held(org, call.id(), sent, { waitS, aborted: request.signal, isNews: isNewClone });
  // After the wait, because the other machine may have come meanwhile.
  const cloned = clones.has(call.id()) ? { cloned: true } : {};
  const elsewhere =
    caller.kind === "node" ? await elsewhereOf(db, org, caller.nodeId, call.address, input) : {};
  return { body: { ...answer, ...cloned, ...elsewhere, ...answers } };
}

/** `hasPeers`: there are new addresses of peers. */
async function answersTo(
  { addresses, pathReports, probes, relayed }: Services,
  call: OrganizationCall,
  asked: Questions,
): Promise<Pick<CheckinAnswer, "addresses" | "paths" | "relayed"> & { hasPeers: boolean }> {
  const { org, caller } = call;
  if (asked.probe !== undefined) await probes.send(call.id(), call.address, asked.probe);
  // Only the node itself knows its paths.
  if (caller.kind !== "node") return { hasPeers: false };
  const own = [org.id, caller.nodeId] as const;
  // A failure must not keep an order from the node.
  const found =
    asked.addresses === undefined
      ? undefined
      : await addresses.news(...own, asked.addresses.since).catch(() => undefined);
  const taken = asked.paths === undefined ? undefined : await pathReports.take(...own, asked.paths);
  const counted = asked.relayed === undefined ? undefined : await relayed.take(...own, asked.relayed);
  return {
    hasPeers: found !== undefined && found.peers.length > 0,
    ...given({ addresses: found, paths: taken, relayed: counted }),
  };
}

type Headers = Record<string, string>;

export function headersOf({ etag, configVersion }: NodeFiles): Headers {
  return { ETag: etag, "X-Config-Version": String(configVersion), "Cache-Control": "private, no-cache" };
}

export function hasAlready({ request }: OrganizationCall, { etag }: NodeFiles): boolean {
  return matches(request.headers.get("If-None-Match"), etag);
}

/** A node needs only the seals after the one that it holds. */
async function answerFor({ request }: OrganizationCall, { sealTags, answer }: NodeFiles) {
  const { seals = [], ...others } = await answer();
  const tags = request.headers.get("If-None-Match");
  const later = seals.slice(sealTags.findLastIndex((tag) => matches(tags, tag)) + 1);
  return later.length === 0 ? others : { ...others, seals: later };
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

/** The text is created within the caller's turn: that of a large configuration takes milliseconds. */
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
