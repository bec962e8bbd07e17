// From one line of a client to its answer: what is no request is refused here, the rest goes to the handler. How lines
// come and go is not known here.

import * as v from "valibot";
import { AppError, fromSystemError } from "../../errors.ts";
import { clean, type Log } from "../../log.ts";
import type { PeerCredentials } from "../../platform/libc.ts";
import { Request, type Answer, type Notice } from "./messages.ts";

/** Who asks. `root`: may do everything; `member`: may change teams. */
export type Peer = Omit<PeerCredentials, "groups"> & { right: "root" | "member" };

export type Client = {
  peer: Peer;
  /** Sends a line that was not asked for; a client that does not read them is disconnected. */
  notify(notice: Notice): void;
  /** The connection outlives the answers to what was asked: lines will come by themselves. */
  stay(): void;
  /** Bytes that were sent and that it has not read. */
  unread(): number;
  /** Aborted when the client has gone. */
  gone: AbortSignal;
};

export type Handler = (request: Request, client: Client) => Promise<Answer>;

export type Incoming = { line: Uint8Array } | { tooLong: boolean };

/** One line, one answer; a blank line has none. Never rejects. */
export async function answerTo(
  incoming: Incoming,
  client: Client,
  handle: Handler,
  log: Log,
): Promise<Answer | undefined> {
  let id: Request["id"];
  try {
    if ("tooLong" in incoming) throw new AppError("payload_too_large", "A line is at most 64 KiB long");
    const text = decode(incoming.line);
    if (text.trim() === "") return undefined;
    const value = parse(text);
    id = idOf(value);
    const request = v.safeParse(Request, value);
    if (!request.success) throw new AppError("validation_failed", describeIssue(request.issues[0]));
    return withId(await handle(request.output, client), id);
  } catch (error) {
    const known = error instanceof AppError ? error : fromSystemError("answer", error);
    if (!(error instanceof AppError))
      log.error("A request failed in a way that is a defect", { error: String(error) });
    const { hint } = known.details;
    const refusal = { ok: false, code: known.code, message: clean(known.message) };
    return withId(hint === undefined ? refusal : { ...refusal, hint: clean(hint) }, id);
  }
}

function decode(line: Uint8Array): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(line);
  } catch (error) {
    throw new AppError("bad_request", "The line is not UTF-8", { cause: error });
  }
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new AppError("bad_request", "The line is not JSON", { cause: error });
  }
}

/** Also an answer to a request that is refused goes back under its id. */
function idOf(value: unknown): Request["id"] {
  const parsed = v.safeParse(v.object({ id: Request.entries.id }), value);
  return parsed.success ? parsed.output.id : undefined;
}

function describeIssue(issue: v.BaseIssue<unknown>): string {
  const path = v.getDotPath(issue);
  return path === null ? "A request is an object with an action" : clean(`${path}: ${issue.message}`, 200);
}

function withId(answer: Answer, id: Request["id"]): Answer {
  return id === undefined ? answer : { ...answer, id };
}
