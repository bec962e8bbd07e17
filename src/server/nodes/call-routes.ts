// Handlers of src/api/node-calls.ts, which nodes call themselves. Users and service tokens may call them too.

import type { nodeCallsApi } from "../../api/node-calls.ts";
import type { CheckinAnswer, CheckinRequest } from "../../protocol/checkin.ts";
import { actorOf } from "../audit/record.ts";
import type { Handlers } from "../http/attach.ts";
import type { OrganizationCall } from "../http/route.ts";
import { makeMove } from "./orders.ts";
import { elsewhereOf } from "./probe.ts";
import { endNode } from "./ephemeral.ts";
import { revokeNode } from "./revoke.ts";
import type { Services } from "../services.ts";
import { inTurnOf } from "../routes/heavy.ts";
import { currentFiles, hasAlready, headersOf, jsonReply, tarReply } from "../routes/node-files.ts";

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
      format === "tar" ? tarReply(services, files, headers) : jsonReply(await files.answer(), headers),
    );
    // Outside of the turn: notes of nodes that download at once share a commit.
    if (call.caller.kind === "node") await services.sentFiles.note(node, files);
    return reply;
  },
  checkin(call, received) {
    const isNews = takeMachine(services, call, received);
    if (call.caller.kind === "node") services.addresses.noteCall(call.caller.nodeId, call.address);
    const input = takeClock(services, call, received);
    if (call.isOwnCa && call.caller.kind === "node") return answerByOwnCa(services, call, input, isNews);
    if (input.leaving === true && call.caller.kind === "node") return leave(services, call, input);
    const isPlain =
      [input.addresses, input.probe, input.paths, input.relayed].every((each) => each === undefined) &&
      !services.clones.has(call.id());
    const known =
      isPlain && call.waitS === 0 ? services.checkins.atOnce(call.org, call.id(), input) : undefined;
    return known === undefined ? checkIn(services, call, input, isNews) : { body: known };
  },
});

type Answered = { body: CheckinAnswer };

/** A node that pinned the own CA. Only the operator's word, signed by the order key, lets it trust another one. */
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

/** Whether this check-in shows that two machines use the node's keys. Only the node itself knows its machine. */
function takeMachine({ clones }: Services, call: OrganizationCall, { machine }: CheckinRequest): boolean {
  const { org, caller, address } = call;
  if (caller.kind !== "node" || machine === undefined) return false;
  return clones.take({ orgId: org.id, nodeId: caller.nodeId, machine, address });
}

/** A node that is well otherwise is shown with its clock. Its own probes do not tell of it. */
function takeClock(
  { nodeClocks }: Services,
  call: OrganizationCall,
  request: CheckinRequest,
): CheckinRequest {
  const { org, caller } = call;
  if (caller.kind !== "node" || !nodeClocks.take({ org, nodeId: caller.nodeId }, request)) return request;
  return request.overlay_state === "running" ? { ...request, overlay_state: "clock_differs" } : request;
}

/** By itself, each of the two machines may report that it is well. */
function asClone(sent: CheckinRequest): CheckinRequest {
  const { overlay_state: state } = sent;
  return state === undefined || state === "stopped" ? sent : { ...sent, overlay_state: "cloned" };
}

/** `isNews`: the answer has news, so it is not held. */
async function checkIn(
  { addresses, checkins, clones, db, probes, pathReports, relayed }: Services,
  call: OrganizationCall,
  input: CheckinRequest,
  isNews: boolean,
): Promise<Answered> {
  const { org, request, caller } = call;
  // A failure must not keep an order from the node.
  const found =
    input.addresses === undefined || caller.kind !== "node"
      ? undefined
      : await addresses.news(org.id, caller.nodeId, input.addresses.since).catch(() => undefined);
  const waitS = isNews || (found !== undefined && found.peers.length > 0) ? 0 : call.waitS;
  if (input.probe !== undefined) await probes.send(call.id(), call.address, input.probe);
  // Only the node itself knows its paths.
  const taken =
    input.paths === undefined || caller.kind !== "node"
      ? {}
      : { paths: await pathReports.take(org.id, caller.nodeId, input.paths) };
  const counted =
    input.relayed === undefined || caller.kind !== "node"
      ? undefined
      : await relayed.take(org.id, caller.nodeId, input.relayed);
  const sent = clones.has(call.id()) ? asClone(input) : input;
  const answer =
    waitS === 0
      ? await checkins.checkin(org, call.id(), sent)
      : await checkins.held(org, call.id(), sent, { waitS, aborted: request.signal });
  // After the wait: the other machine may have come meanwhile.
  const cloned = clones.has(call.id()) ? { cloned: true } : {};
  const elsewhere =
    caller.kind === "node" ? await elsewhereOf(db, org, caller.nodeId, call.address, input) : {};
  return {
    body: {
      ...answer,
      ...taken,
      ...cloned,
      ...elsewhere,
      ...(found === undefined ? {} : { addresses: found }),
      ...(counted === undefined ? {} : { relayed: counted }),
    },
  };
}
