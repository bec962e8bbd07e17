// Handlers of src/api/node-calls.ts, which nodes call themselves. Users and service tokens may call them too.

import { given } from "../../base/given.ts";
import type { nodeCallsApi } from "../../api/node-calls.ts";
import type { CheckinAnswer, CheckinRequest } from "../../protocol/checkin.ts";
import { takeDrillReport } from "../rollout/drills.ts";
import { takeUpdateReport } from "../rollout/update-reports.ts";
import { actorOf } from "../audit/record.ts";
import type { Handlers } from "../http/attach.ts";
import type { OrganizationCall } from "../http/route.ts";
import { makeMove } from "./contact/orders.ts";
import { download } from "./download-routes.ts";
import { elsewhereOf } from "./contact/lighthouse-address.ts";
import { endNode } from "./lifecycle/ephemeral.ts";
import { revokeNode } from "./lifecycle/revoke.ts";
import type { Services } from "../services.ts";

export const nodeCallHandlers = (services: Services): Handlers<typeof nodeCallsApi> => ({
  download: (call, { format }) => download(services, call, format),
  checkin(call, received) {
    const isCloneFound = noteMachine(services, call, received);
    if (call.caller.kind === "node") services.addresses.noteCall(call.caller.nodeId, call.address);
    const input = withClockFinding(services, call, received);
    if (input.flows === undefined || call.caller.kind !== "node")
      return answerTo(services, call, input, isCloneFound);
    // Counted beside the answer, so that a check-in with flows may still be answered from memory.
    const counted = services.flowReports.take(call.org, call.caller.nodeId, input.flows);
    return withFlows(answerTo(services, call, input, isCloneFound), counted);
  },
  async reportUpdate(call, report) {
    await takeUpdateReport(services, call.org.id, call.id(), report);
  },
  async reportDrill(call, report) {
    await takeDrillReport(services, call.org.id, call.id(), report);
  },
});

/** Chooses the way of the answer. Only the plain one, from memory, is no promise: a promise costs nearly as much as the rest. */
function answerTo(
  services: Services,
  call: OrganizationCall,
  input: CheckinRequest,
  isCloneFound: boolean,
): Answered | Promise<Answered> {
  if (call.isOwnCa && call.caller.kind === "node") return answerByOwnCa(services, call, input, isCloneFound);
  if (input.leaving === true && call.caller.kind === "node") return leave(services, call, input);
  const isPlain = questions.every((field) => input[field] === undefined) && !services.clones.has(call.id());
  const fromMemory =
    isPlain && call.waitS === 0 ? services.checkins.atOnce(call.org, call.id(), input) : undefined;
  return fromMemory === undefined ? checkIn(services, call, input, isCloneFound) : { body: fromMemory };
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
  isCloneFound: boolean,
): Promise<Answered> {
  services.meters.ownCaCheckin();
  if (input.leaving === true) return leave(services, call, input);
  const reply = await checkIn(services, call, input, isCloneFound);
  if (services.movesNodes !== true) return reply;
  return { body: { ...reply.body, move: await makeMove(services, call.org, services.publicUrl) } };
}

/** The node leaves the organization. Only its own token leads here: an administrator deletes nodes, with a reason. */
async function leave(services: Services, call: OrganizationCall, input: CheckinRequest): Promise<Answered> {
  const answer = await services.checkins.checkin(call.org, call.id(), input);
  // False for a node that is not ephemeral, which is revoked instead.
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

/** Replaces the state that the node reports: each of the two machines may report that it is well. */
function withCloneFinding(sent: CheckinRequest): CheckinRequest {
  const { overlay_state: state } = sent;
  return state === undefined || state === "stopped" ? sent : { ...sent, overlay_state: "cloned" };
}

/** `isCloneFound`: this check-in shows that two machines use the node's keys, so its answer is not held. */
async function checkIn(
  services: Services,
  call: OrganizationCall,
  input: CheckinRequest,
  isCloneFound: boolean,
): Promise<Answered> {
  const { checkins, clones, db } = services;
  const { org, request, caller } = call;
  const { hasPeers, ...answers } = await answersTo(services, call, input);
  const waitS = isCloneFound || hasPeers ? 0 : call.waitS;
  const isCloned = clones.has(call.id());
  const sent = isCloned ? withCloneFinding(input) : input;
  const isNewClone = () => !isCloned && clones.has(call.id());
  const answer =
    waitS === 0
      ? await checkins.checkin(org, call.id(), sent)
      : await checkins.held(org, call.id(), sent, { waitS, aborted: request.signal, isNews: isNewClone });
  // After the wait, because the other machine may have come meanwhile.
  const cloned = clones.has(call.id()) ? { cloned: true } : {};
  // Whether a lighthouse calls from another address than the one at which nodes look for it.
  const elsewhere =
    caller.kind === "node" ? await elsewhereOf(db, org, caller.nodeId, call.address, input) : {};
  return { body: { ...answer, ...cloned, ...elsewhere, ...answers } };
}

/** Answers what the check-in asks beside its report. `hasPeers`: the answer has new addresses of peers, so it is not held. */
async function answersTo(
  { addresses, pathReports, probes, relayed }: Services,
  call: OrganizationCall,
  asked: Questions,
): Promise<Pick<CheckinAnswer, "addresses" | "paths" | "relayed"> & { hasPeers: boolean }> {
  const { org, caller } = call;
  if (asked.probe !== undefined) await probes.send(call.id(), call.address, asked.probe);
  // Only the node itself knows its paths.
  if (caller.kind !== "node") return { hasPeers: false };
  const node = [org.id, caller.nodeId] as const;
  // A failure must not keep an order from the node.
  const peers =
    asked.addresses === undefined
      ? undefined
      : await addresses.news(...node, asked.addresses.since).catch(() => undefined);
  const taken = asked.paths === undefined ? undefined : await pathReports.take(...node, asked.paths);
  const counted = asked.relayed === undefined ? undefined : await relayed.take(...node, asked.relayed);
  return {
    hasPeers: peers !== undefined && peers.peers.length > 0,
    ...given({ addresses: peers, paths: taken, relayed: counted }),
  };
}
