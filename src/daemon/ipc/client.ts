// The client of the daemon's socket: one connection, one request after the other. It must not load schemas, because
// `status` must start in milliseconds. It trusts the answers: the daemon runs as root of this machine.

import { defer } from "../../base/defer.ts";
import { given } from "../../base/given.ts";
import { brand } from "../../brand.ts";
import { AppError, isErrorCode } from "../../base/errors.ts";
import { systemErrorCode } from "../../base/system-errors.ts";
import { privilegeHint } from "../../platform/privilege.ts";
import { daemonRestartHint, daemonStartHint } from "../../platform/service-manager.ts";
import type { System } from "../../base/system.ts";
import type { Answer, Notice, Request } from "./messages.ts";
import type { LocalAddress } from "./transport.ts";

type IpcClient = {
  /** Throws daemon_unreachable if the daemon runs the organizations of another config root. */
  verify(): Promise<void>;
  /** Resolves with the answer. A refusal becomes an AppError with the daemon's code and message. */
  request(request: Request): Promise<Answer>;
  /** Calls `onNotice` for each notice until the connection ends. */
  notices(onNotice: (notice: Notice) => void): Promise<void>;
  close(): void;
};

/** How long to wait for a daemon that is starting: scripts run `start` right after boot. */
const startingMs = 2000;

/**
 * `patient`: waits `startingMs` for a daemon that does not listen yet. Throws AppError("daemon_unreachable") if no daemon listens,
 * AppError("os_permission") if access is denied.
 */
export async function connectDaemon(
  address: LocalAddress,
  system: Pick<System, "sleep">,
  options: { patient: boolean },
): Promise<IpcClient> {
  const path = address.kind === "pipe" ? address.name : address.path;
  for (let waited = 0; ; waited += 50) {
    try {
      return await open(path, address.configRoot, system);
    } catch (error) {
      const code = systemErrorCode(error);
      if (code === "EACCES" || code === "EPERM") throw accessDenied(path, error);
      if (!options.patient || waited >= startingMs) throw notListening(path, error);
      await system.sleep(50);
    }
  }
}

/** One request on a connection of its own. `meanwhile` begins when the request is sent. */
export async function askDaemon(
  address: LocalAddress,
  system: Pick<System, "sleep">,
  request: Request,
  { patient, meanwhile }: { patient: boolean; meanwhile?: () => Promise<void> },
): Promise<Answer> {
  const daemon = await connectDaemon(address, system, { patient });
  using _ = defer(() => daemon.close());
  const [answer] = await Promise.all([daemon.request(request), meanwhile?.()]);
  return answer;
}

/** How long to wait for the answer to a request that needs no work. */
const answersWithinMs = 5000;
/** How long to wait for probes: the daemon waits for them 8 s at most (node/health/prober.ts). */
const probesWithinMs = 15_000;
/** Actions that need no work. */
const answeredAtOnce = new Set(["teams", "list", "status", "version", "logs", "subscribe", "peers"]);

/** Actions whose answers contain the daemon's config root. For all others the version is asked first. */
const tellsConfigRoot = new Set(["list", "status", "version"]);

async function open(
  path: string,
  configRoot: string | undefined,
  system: Pick<System, "sleep">,
): Promise<IpcClient> {
  const { send, next, end } = await openLines(path);
  const ask = async (request: Request): Promise<Answer> => {
    send(`${JSON.stringify(request)}\n`);
    for (let line = await next(); line !== undefined; line = await next()) {
      if ("ok" in line) return requireOk(line);
    }
    throw new AppError("daemon_unreachable", "The daemon closed the connection without an answer");
  };
  /** Asks with a time limit: for requests that are answered at once. */
  const askSoon = async (request: Request): Promise<Answer> => {
    const answered = new AbortController();
    const withinMs = request.probe === true ? probesWithinMs : answersWithinMs;
    const timeout = system.sleep(withinMs, answered.signal).then(() => {
      end();
      throw new SilentDaemon();
    });
    try {
      return await Promise.race([ask(request), timeout]);
    } finally {
      // The sleep rejects when it is aborted.
      timeout.catch(() => undefined);
      answered.abort(new Error("Answered"));
    }
  };
  const ofOurConfigRoot = (answer: Answer) => requireConfigRoot(answer, configRoot);
  // A start may take long: the version also detects a daemon that hangs.
  const verify = async () => void (await ofOurConfigRoot(await askSoon({ action: "version" })));
  return {
    verify,
    async request(request) {
      if (tellsConfigRoot.has(request.action)) return ofOurConfigRoot(await askSoon(request));
      await verify();
      return answeredAtOnce.has(request.action) ? askSoon(request) : ask(request);
    },
    async notices(onNotice) {
      for (let line = await next(); line !== undefined; line = await next()) {
        if ("event" in line) onNotice(line);
      }
    },
    // No request is in progress, so nothing can be lost.
    close: end,
  };
}

type Line = Answer | Notice;

/** A connection as lines. `next`: undefined after its end. */
async function openLines(
  path: string,
): Promise<{ send(text: string): void; next(): Promise<Line | undefined>; end(): void }> {
  const decoder = new TextDecoder();
  let buffered = "";
  let unsent: Uint8Array = new Uint8Array();
  const lines: Line[] = [];
  let wake = () => {};
  const state = { closed: false };
  const close = () => {
    state.closed = true;
    wake();
  };
  const socket = await Bun.connect({
    unix: path,
    socket: {
      data(_, bytes) {
        const parts = (buffered + decoder.decode(bytes, { stream: true })).split("\n");
        buffered = parts.pop() ?? "";
        for (const part of parts) lines.push(readLine(part));
        wake();
      },
      drain(socket) {
        unsent = unsent.subarray(Math.max(0, socket.write(unsent)));
      },
      close,
      error: close,
    },
  });
  return {
    send(text) {
      const bytes = new TextEncoder().encode(text);
      // Nothing older is unsent: a request follows only after the answer to the one before.
      unsent = bytes.subarray(Math.max(0, socket.write(bytes)));
    },
    async next() {
      while (lines.length === 0 && !state.closed) await new Promise<void>((resolve) => (wake = resolve));
      return lines.shift();
    },
    end: () => socket.terminate(),
  };
}

/** Throws if the daemon runs the organizations of another config root. Earlier daemons do not send theirs. */
async function requireConfigRoot(answer: Answer, configRoot: string | undefined): Promise<Answer> {
  const { config_root: served } = answer;
  if (served === undefined || configRoot === undefined || served === configRoot) return answer;
  // Loaded on demand: it costs `status` a millisecond, and most roots are written alike.
  const { foreignDaemon, isSameRoot } = await import("../../platform/config-root.ts");
  if (isSameRoot(served, configRoot)) return answer;
  throw foreignDaemon(served, configRoot);
}

function readLine(text: string): Line {
  const value: unknown = JSON.parse(text);
  if (isLine(value)) return value;
  throw new AppError("failed", "The daemon sent a line that is neither an answer nor a notice");
}

function isLine(value: unknown): value is Line {
  return typeof value === "object" && value !== null && ("ok" in value || "event" in value);
}

/** Throws the error of a refusal. */
function requireOk(answer: Answer): Answer {
  if (answer.ok) return answer;
  const code = answer.code !== undefined && isErrorCode(answer.code) ? answer.code : "failed";
  throw new AppError(code, answer.message, given({ hint: answer.hint }));
}

/** The daemon listens, and does not answer in time. */
export class SilentDaemon extends AppError {
  constructor() {
    super("daemon_unreachable", "The daemon listens but does not answer", {
      hint: daemonRestartHint(undefined),
    });
  }
}

function notListening(path: string, cause: unknown): AppError {
  return new AppError("daemon_unreachable", `The daemon does not listen on ${path}`, {
    cause,
    hint: daemonStartHint(),
  });
}

function accessDenied(path: string, cause: unknown): AppError {
  return new AppError("os_permission", `Permission denied: cannot connect to ${path}`, {
    cause,
    hint: `${privilegeHint(process)} Or become a member of the group ${brand.id}.`,
  });
}
