// Passes 1 MB texts, of all shapes that can make a regular expression slow, to all code that reads or prints foreign text.
// Runs in a separate process, because only a kill ends an expression that takes minutes. Prints the name of each reader to
// standard output before it starts, and printed texts that are too long to standard error.

import { GroupName } from "../../src/protocol/values.ts";
import * as v from "valibot";
import { answerTo } from "../../src/daemon/ipc/answer-line.ts";
import { Request } from "../../src/daemon/ipc/messages.ts";
import { run } from "../../src/cli/run.ts";
import { AppError } from "../../src/base/errors.ts";
import { clean, cleanErrors, cut, makeLog, printable } from "../../src/base/log.ts";
import { redact } from "../../src/base/redact.ts";
import { oneLine } from "../../src/base/unprintable.ts";
import { isLoopback } from "../../src/base/loopback.ts";
import { checkBase, makeClient } from "../../src/node/contact/requests/client.ts";
import { testConfig } from "../../src/node/engine/engine.ts";
import { describe, isReady, parseLogLine, reloadEvidence } from "../../src/node/engine/log-lines.ts";
import { countTunnels } from "../../src/node/engine/count-tunnels.ts";
import { readYaml } from "../../src/node/files/config/read-yaml.ts";
import { decodeCaBundle } from "../../src/pki/nebula.ts";
import { parsePem } from "../../src/pki/pem.ts";
import { openSecret } from "../../src/pki/secrets.ts";
import { verifyOrder } from "../../src/pki/signed-messages.ts";
import * as protocol from "./protocol.ts";
import { Manifest } from "../../src/release/manifest.ts";
import { readPublicKey, verifySignature } from "../../src/release/minisign.ts";
import { maskNetwork, parseAddress, parseNetwork } from "../../src/base/ip.ts";
import { defaultPlaces } from "../../src/brand.ts";
import { parseEngineVersion } from "../../src/engine/features.ts";
import { daemonArgs } from "../../src/platform/daemon-args.ts";
import { taskXml } from "../../src/platform/windows/task.ts";
import { objectOf } from "../../src/server/http/body.ts";
import { clientAddress, isOwnName } from "../../src/server/http/edge.ts";
import { ListQuery } from "../../src/api/values.ts";
import { errorReply } from "../../src/server/http/reply.ts";
import { Email } from "../../src/api/values.ts";
import { Ports } from "../../src/api/rules.ts";
import { Cidr, ConfigOverrides } from "../../src/engine/allowed-settings.ts";
import { realSystem, type System } from "../../src/base/system.ts";
import { schemasOf } from "./maxima.ts";

const length = 1_000_000;
const maxShown = 17_000;

const units = [
  ..."aA0-_.:/=+@ \t\n\r\"'\\[{(,\u0000\u001b\u2028é".split(""),
  "-eyJ",
  "eyJa.b",
  "eyJa.b.c-",
  "Bearer ",
  "bearer\t",
  "-----BEGIN ",
  "-----BEGIN PRIVATE KEY-----",
  "-----END PRIVATE KEY-----\n",
  `${"A".repeat(43)} `,
  "\u{1f600}",
  "a.",
  "1.1.",
  "a=",
  'a="',
  'a="\\',
  "::",
  "hostmap_main_hosts{\n",
  "- ",
  "* ",
];
const shapes = [
  ...units.map((unit) => `${unit.repeat(length / unit.length)}!`),
  `eyJ${"-eyJ".repeat(length / 4)}`,
];

const written: string[] = [];
const stream = { write: (text: string) => void written.push(text), isTerminal: false, columns: 80 };
const system: System = { ...realSystem(), env: {}, stdout: stream, stderr: stream };
const log = makeLog({ verbose: true, stamped: true, write: stream.write, now: () => 0 });
const client = {
  peer: { pid: 1, uid: 0, gid: 0, right: "root" as const },
  notify() {},
  stay() {},
  unread: () => 0,
};
const order = { kty: "OKP", crv: "Ed25519", x: "x", kid: "k" } as const;

const refusing = (status: number, body: string) =>
  makeClient({
    base: "https://a",
    system: { fetch: async () => new Response(body, { status }), sleep: async () => {} },
  });
const refusal = (detail: string, errors: Record<string, string[]>) =>
  JSON.stringify({ error: "e", code: "validation_failed", detail, status_code: 400, errors });
const ended = (text: string) => async () => ({ status: 1, stdout: "", stderr: text, timedOut: false });

/** The result is shown to a user. */
const shown: Record<string, (text: string) => unknown> = {
  clean: (text) => clean(text),
  cut: (text) => cut(text, 1000),
  cleanErrors: (text) => JSON.stringify(cleanErrors({ [text]: [text] })),
  "log message": (text) => log.error(text),
  "log field": (text) => log.error("x", { field: text }),
  errorReply: (text) =>
    JSON.stringify(errorReply(new AppError("conflict", text, { errors: { [text]: [text] } })).body),
  "answer over IPC": async (text) => {
    const fail = () => Promise.reject(new AppError("failed", text, { hint: text }));
    const answer = await answerTo(
      { line: Buffer.from('{"action":"x"}') },
      { ...client, gone: new AbortController().signal },
      { handle: fail, onMalformed: ({ message }) => log.error(message), log },
    );
    return JSON.stringify(answer);
  },
  "command line": (text) => run(["status", text.slice(0, 10_000)], system),
  "command line, JSON": (text) => run(["status", `--${text.slice(0, 10_000)}`, "--json"], system),
  "control plane's refusal": (text) =>
    refusing(400, refusal(text.slice(0, 60_000), { f: [text.slice(0, 4000)] })).checkin("a", 1, {
      version: "1",
      uptime: 1,
    }),
  "control plane's page": (text) => refusing(400, text).checkin("a", 1, { version: "1", uptime: 1 }),
  "engine's test": (text) =>
    testConfig("/engine", "/c", { ...system, run: ended(`level=fatal msg="${text}"`) }),
  "engine's test, plain": (text) => testConfig("/engine", "/c", { ...system, run: ended(`panic: ${text}`) }),
  "engine's log": (text) =>
    clean(
      describe(
        parseLogLine(JSON.stringify({ level: "error", msg: text, error: text })) ?? {
          time: undefined,
          level: "error",
          msg: "",
          fields: {},
        },
      ),
    ),
};

const places = defaultPlaces("linux", {});

const read: Record<string, (text: string) => unknown> = {
  redact,
  oneLine,
  printable,
  "log line": parseLogLine,
  "log line's meaning": (text) => {
    const line = { time: undefined, level: "error" as const, msg: text, fields: {} };
    return [isReady(line), reloadEvidence(line)];
  },
  metrics: (text) => countTunnels("http://127.0.0.1", { fetch: async () => new Response(text) }),
  yaml: (text) => readYaml(text, "It"),
  "yaml text": (text) => readYaml(`a: ${text}`, "It"),
  pem: parsePem,
  "pem body": (text) => parsePem(`-----BEGIN A-----\n${text}\n-----END A-----\n`),
  "CA bundle": decodeCaBundle,
  secret: (text) => openSecret(new Uint8Array(32), text, "x"),
  order: (text) => verifyOrder(text, order),
  minisign: (text) => verifySignature(new Uint8Array(), text, []),
  "minisign key": readPublicKey,
  loopback: isLoopback,
  base: (text) => checkBase(text, true),
  "base's path": (text) => checkBase(`https://a/${text}`, true),
  address: parseAddress,
  network: parseNetwork,
  "mask of a network": maskNetwork,
  "engine version": parseEngineVersion,
  "daemon's arguments": (text) => daemonArgs({ ...places, configRoot: `/${text}/a` }, "linux"),
  "task of Windows": (text) => taskXml({ ...places, executable: "a", configRoot: `C:\\${text} a` }, {}),
  body: (text) => objectOf(text, "application/json"),
  "content type": (text) => objectOf("{}", text),
  "content type's end": (text) => objectOf("{}", `application/json;${text}`),
  host: (text) => isOwnName(text),
  forwarded: (text) => clientAddress("127.0.0.1", text.slice(0, 16_384), []),
  search: (text) => v.safeParse(ListQuery, { search: text, page: text, page_size: text }),
  schemas: (text) =>
    [
      ...schemasOf(protocol),
      ...[Email, GroupName, Cidr, Ports, Request, Manifest].map((each) => ["", each] as const),
    ].map(([, schema]) => [v.safeParse(schema, text), v.safeParse(schema, { [text]: text })]),
  overrides: (text) =>
    v.safeParse(ConfigOverrides, {
      preferred_ranges: [text],
      lighthouse: { advertise_addrs: [text], remote_allow_list: { [text]: true } },
      stats: { type: "prometheus", listen: text, path: text, interval: text },
      tun: { dev: text },
    }),
};

async function attempt(name: string, work: (text: string) => unknown, text: string): Promise<void> {
  written.length = 0;
  let result: unknown;
  try {
    result = await work(text);
  } catch (error) {
    const details =
      error instanceof AppError ? [error.details.hint, JSON.stringify(error.details.errors)] : [];
    result = `${error instanceof Error ? error.message : ""}${details.join("")}`;
  }
  if (!Object.hasOwn(shown, name)) return;
  const longest = Math.max(
    ...written.map((each) => each.length),
    typeof result === "string" ? result.length : 0,
  );
  if (longest > maxShown) process.stderr.write(`${name} shows ${longest} characters\n`);
}

for (const [name, work] of Object.entries({ ...shown, ...read })) {
  process.stdout.write(`${name}\n`);
  for (const text of shapes) await attempt(name, work, text);
}
process.stdout.write("done\n");
