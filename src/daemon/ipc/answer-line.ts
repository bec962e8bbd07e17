// Turns one line of a client into its answer: refuses what is not a request and passes the rest to the handler. Framing of
// lines belongs to connection.ts.

import * as v from "valibot";
import { AppError, fromSystemError } from "../../base/errors.ts";
import { clean, type Log } from "../../base/log.ts";
import type { PeerCredentials } from "../../platform/libc.ts";
import { Request, type Answer, type Notice } from "./messages.ts";

/** The connected process. `root` may do everything; `member` may change organizations. */
export type Peer = Omit<PeerCredentials, "groups"> & { right: "root" | "member" };

export type Client = {
  peer: Peer;
  /** Sends a line without a request. A client that does not read is disconnected. */
  notify(notice: Notice): void;
  /** Keeps the connection open after the last answer, because notices will follow. */
  stay(): void;
  /** Bytes that were sent but not read. */
  unread(): number;
  /** Aborted when the client disconnects. */
  gone: AbortSignal;
};

export type Handler = (request: Request, client: Client) => Promise<Answer>;

export type Incoming = { line: Uint8Array } | { tooLong: true };

export type Answering = {
  handle: Handler;
  /** Called with each line that is not a request. */
  onMalformed(refusal: AppError): void;
  log: Log;
};

/** One answer for each line; none for a blank line. Never rejects. */
export async function answerTo(
  incoming: Incoming,
  client: Client,
  { handle, onMalformed, log }: Answering,
): Promise<Answer | undefined> {
  const read = readRequest(incoming);
  if (read === undefined) return undefined;
  if ("refusal" in read) {
    onMalformed(read.refusal);
    return refuse(read.refusal, read.id);
  }
  const { request } = read;
  try {
    return withId(await handle(request, client), request.id);
  } catch (error) {
    if (!(error instanceof AppError)) log.error("Internal error: this is a defect", { error: String(error) });
    return refuse(fromSystemError("answer", error), request.id);
  }
}

type ParsedLine = { request: Request } | { refusal: AppError; id?: Request["id"] };

/** Undefined for a blank line. */
function readRequest(incoming: Incoming): ParsedLine | undefined {
  let id: Request["id"];
  try {
    if ("tooLong" in incoming) throw new AppError("payload_too_large", "The line is longer than 64 KiB");
    const text = decode(incoming.line);
    if (text.trim() === "") return undefined;
    const value = parse(text);
    id = idOf(value);
    const request = v.safeParse(Request, value);
    if (!request.success) throw new AppError("validation_failed", describeIssue(request.issues[0]));
    return { request: request.output };
  } catch (error) {
    return { refusal: fromSystemError("read the line", error), id };
  }
}

function refuse({ code, message, details: { hint } }: AppError, id: Request["id"]): Answer {
  const refusal = { ok: false, code, message: clean(message) };
  return withId(hint === undefined ? refusal : { ...refusal, hint: clean(hint) }, id);
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

/** A refusal carries the id of its request too. */
function idOf(value: unknown): Request["id"] {
  const parsed = v.safeParse(v.object({ id: Request.entries.id }), value);
  return parsed.success ? parsed.output.id : undefined;
}

function describeIssue(issue: v.BaseIssue<unknown>): string {
  const path = v.getDotPath(issue);
  return path === null
    ? "A request must be an object with an action"
    : clean(`${path}: ${issue.message}`, 200);
}

function withId(answer: Answer, id: Request["id"]): Answer {
  return id === undefined ? answer : { ...answer, id };
}
