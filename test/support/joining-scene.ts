// A network on which machines join by a browser: a control plane with a CA of its own, a lighthouse with a real engine, and a
// Chromium, each in a network namespace of its own.

import { chmodSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { chromium, type Page } from "playwright-core";
import * as v from "valibot";
import { parseJoinKey } from "../../src/protocol/join-key.ts";
import { agent, agentJson, buildAgent, cleanEnvironment } from "./agent.ts";
import { password } from "./console.ts";
import { chromiumPath } from "./debian.ts";
import { makeLan, type Host } from "./namespaces.ts";
import { temporaryDirectory } from "./temporary.ts";
import { until } from "./until.ts";

export const nebula = "/usr/bin/nebula";
export const member = "ada@example.org";
const owner = "root@example.org";
const Waiting = v.object({
  state: v.literal("waiting"),
  url: v.string(),
  words: v.pipe(v.array(v.string()), v.length(4)),
  expires_in: v.literal(600),
});

export type JoiningScene = Awaited<ReturnType<typeof startJoiningScene>>;

/** `names`: the hosts of machines that join. */
export async function startJoiningScene(names: readonly string[]) {
  buildAgent();
  await using cleanup = new AsyncDisposableStack();
  const directory = cleanup.use(temporaryDirectory());
  const lan = cleanup.use(makeLan(["plane", "hub", "desk", ...names]));
  const data = join(directory.path, "server");
  const admin = (line: string, input = "") =>
    agentJson(["admin", ...line.split(" "), "--data-dir", data], { input });
  for (const email of [member, owner]) await admin(`user create ${email} --password-file -`, password);
  await admin(`org create acme --network 10.77.0.0/16 --owner ${owner}`);
  await admin(`member create acme ${member}`);
  const url = await serve(lan.host("plane"), data, cleanup);
  const key = String((await admin("token create acme --lighthouse --expires 1h"))["join_key"]);

  /** `agent up` in the foreground. The scene ends it. */
  const up = (host: Host, name: string, words: readonly string[], env: Record<string, string> = {}) => {
    const machine = startUp(host, join(directory.path, name), [...words, "--node-name", name], env);
    all.defer(() => machine.end("SIGTERM").then(() => undefined));
    return machine;
  };
  const all = cleanup.use(new AsyncDisposableStack());
  const hub = lan.host("hub");
  up(hub, "hub", ["--public-ip", hub.address], { AGENT_JOIN_KEY: key });
  await pings(hub);
  const page = await openPage(lan.host("desk"), directory.path, cleanup);
  const started = cleanup.move();
  return {
    url,
    /** The arguments of `agent up` for this control plane. */
    here: [url, "--ca-fingerprint", parseJoinKey(key).caFingerprint ?? ""],
    directory: directory.path,
    data,
    host: lan.host,
    admin,
    up,
    page,
    [Symbol.asyncDispose]: () => started.disposeAsync(),
  };
}

async function serve(plane: Host, data: string, cleanup: AsyncDisposableStack): Promise<string> {
  const url = `https://${plane.address}:8420`;
  const listen = ["--listen", `${plane.address}:8420`, "--tls", "auto", "--public-url", url];
  const serving = plane.spawn([agent, "serve", "--data-dir", data, ...listen]);
  cleanup.defer(async () => {
    serving.kill("SIGTERM");
    await serving.exited;
  });
  const probe = ["curl", "-sfk", "-o", "/dev/null", `${url}/healthz`];
  await until(() => Bun.spawnSync(plane.inside(probe)).exitCode === 0);
  return url;
}

function startUp(host: Host, place: string, words: readonly string[], env: Record<string, string>) {
  const etc = join(place, "etc");
  const places = ["--config-root", etc, "--state-db-path", join(place, "state.db")];
  const own = ["--socket-path", `${place}.sock`, "--overlay-binary", nebula];
  const argv = [agent, "up", ...words, "--foreground", ...places, ...own, "--json"];
  const child = Bun.spawn(host.inside(argv), {
    env: cleanEnvironment(env),
    stdin: "ignore",
    stdout: "pipe",
    stderr: "ignore",
  });
  let said = "";
  const reading = (async () => {
    for await (const chunk of child.stdout) said += new TextDecoder().decode(chunk);
  })();
  return {
    etc,
    said: () => said,
    /** What it shows: an address, and four words. */
    async waiting() {
      const line = await until(() => /^.*"waiting".*$/m.exec(said)?.[0]);
      return v.parse(v.pipe(v.string(), v.parseJson(), Waiting), line);
    },
    async end(signal: "SIGTERM" | "SIGINT"): Promise<number> {
      child.kill(signal);
      const status = await child.exited;
      await reading;
      return status;
    },
  };
}

/** Waits until the lighthouse answers through the overlay. */
export const pings = (host: Host) =>
  until(
    () => Bun.spawnSync(host.inside(["ping", "-c", "1", "-W", "1", "10.77.0.1"])).exitCode === 0 || undefined,
  );

async function openPage(desk: Host, directory: string, cleanup: AsyncDisposableStack): Promise<Page> {
  const starter = join(directory, "chromium");
  writeFileSync(starter, `#!/bin/sh\nexec ${desk.inside([chromiumPath]).join(" ")} "$@"\n`);
  chmodSync(starter, 0o755);
  const browser = await chromium.launch({
    executablePath: starter,
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking"],
  });
  cleanup.defer(() => browser.close());
  return (await browser.newContext({ ignoreHTTPSErrors: true })).newPage();
}
