// `bun test/bench/startup.ts [RUNS] [OTHER]`: start-up times of the executable, and of another build of it (a path), in turns
// with an empty program. Bars: 2 times the empty program for local commands; 3 times, plus the time of one request, for
// commands that a server runs every minute; 40 ms for `node list`; 1.15 times the processor time of the other build.
// `bun test/bench/startup.ts status [RUNS]`: `agent status` against a minimal program, compiled with the same flags, that asks
// the same socket (bar: 1.5 times), and `agent peers` with 100 tunnels (bar: 10 ms more). The engine and its control socket
// are scripts.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { tokenPairsApi } from "../../src/api/sessions.ts";
import { TokenPair } from "../../src/protocol/sign-in.ts";
import { paths } from "../support/paths.ts";
import { Credentials } from "../../src/protocol/organization-files.ts";
import { agent, buildAgent, startControlPlane } from "../support/agent.ts";
import { makeOrganization, owner, registerNode } from "../support/overlay.ts";
import { buildProgram, measureStartup } from "../support/startup.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { ask, placesBelow, registerDesktop, startDaemon, untilStatus } from "../support/daemon.ts";
import { startControlSocket, writeScriptedEngine } from "../support/scripted-engine.ts";
import { choose, figure, print } from "./measure.ts";

const tunnels = 100;

async function commands([runs = "60", other]: string[]): Promise<void> {
  buildAgent();
  using directory = temporaryDirectory();
  await using plane = await startControlPlane(join(directory.path, "server"));
  const acme = await makeOrganization(plane);
  const root = join(directory.path, "node");
  const node = await registerNode(acme, root, "one", await acme.makeToken());
  const credentials = v.parse(
    v.pipe(v.string(), v.parseJson(), Credentials),
    readFileSync(join(node.directory, "credentials.json"), "utf8"),
  );
  const request = `
  const answer = await fetch(${JSON.stringify(plane.url + paths.checkin("acme", node.node_id))}, {
    method: "POST",
    headers: { "Content-Type": "application/json", Authorization: "Bearer ${credentials.api_token}" },
    body: '{"version":"1","uptime":1}',
  });
  await answer.json();
  `;
  const here = ["--config-root", root, "--overlay-binary", "/nowhere/overlay"];
  const list = ["admin", "node", "list", "acme"];
  const signedIn = await acme.api("POST", tokenPairsApi.create.path, owner);
  const { access } = v.parse(TokenPair, await signedIn.json());
  const lists = {
    "agent admin node list": [agent, ...list, "--data-dir", plane.dataDirectory],
    "… over the network": [agent, ...list, "--api-base", plane.url, "--access-token", access],
  };
  const lines = [["version", "--no-check"], ["--help"], ["status"], ["checkin"], ["check-auth"]];
  const figures = await measureStartup(directory.path, Number(runs), [
    { name: "empty program, a request", argv: [await buildProgram(directory.path, "request", request)] },
    ...["status", "checkin", "check-auth"].map((word) => ({
      name: `agent ${word}`,
      argv: [agent, word, ...here],
    })),
    ...Object.entries(lists).map(([name, argv]) => ({ name, argv })),
    ...(other === undefined
      ? []
      : lines.map((words) => ({ name: `other ${words.join(" ")}`, argv: [other, ...words, ...here] }))),
  ]);
  const medianOf = (wanted: string) => figures.find(({ name }) => name === wanted)?.p50 ?? 0;
  const [empty, asking] = [medianOf("empty program"), medianOf("empty program, a request")];
  const bar: Record<string, number> = {
    "agent version --no-check": 2 * empty,
    "agent --help": 2 * empty,
    "agent status": 3 * empty,
    "agent checkin": 3 * empty + (asking - empty),
    "agent check-auth": 3 * empty + (asking - empty),
    ...Object.fromEntries(Object.keys(lists).map((name) => [name, 40])),
  };
  const cpuOf = (wanted: string) => figures.find(({ name }) => name === wanted)?.cpu ?? Number.NaN;
  for (const { name, p10, p50, p90, ratio, cpu } of figures) {
    const most = bar[name];
    figure(name, p50, { unit: "ms", ...(most === undefined ? {} : { most: Number(most.toFixed(1)) }) });
    const range = `${p10.toFixed(1)} to ${p90.toFixed(1)} ms`;
    print(
      `${"".padEnd(7)}${range}, ${cpu.toFixed(1)} of processor, ${ratio.toFixed(2)} times the empty program`,
    );
  }
  if (other !== undefined)
    for (const words of lines) {
      const line = words.join(" ");
      const ratio = cpuOf(`agent ${line}`) / cpuOf(`other ${line}`);
      figure(`processor time of ${line}, of the other build's`, ratio, { digits: 2, most: 1.15 });
    }
}

async function status([runs = "60"]: string[]): Promise<void> {
  buildAgent();
  using directory = temporaryDirectory();
  const engine = writeScriptedEngine(directory.path);
  await using plane = await startControlPlane(join(directory.path, "server"));
  const acme = await makeOrganization(plane);
  const places = placesBelow(directory.path, engine);
  await registerDesktop(acme, places, await acme.makeToken(), "desk");
  using _ = startControlSocket(directory.path, places, { tunnels });
  const host = { inside: (argv: readonly string[]) => [...argv] };
  const daemon = await startDaemon(host, places);
  try {
    await untilStatus(
      places,
      "acme",
      ({ state, health }) => state === "running" && health !== undefined,
      20_000,
    );
    const minimal = `
  import { writeSync } from "node:fs";
  const end = Promise.withResolvers();
  let text = "";
  await Bun.connect({ unix: ${JSON.stringify(places.socketPath)}, socket: {
    open(socket) { socket.write('{"action":"status"}\\n'); },
    data(socket, bytes) { text += bytes.toString(); if (text.endsWith("\\n")) { socket.end(); end.resolve(); } },
  } });
  await end.promise;
  writeSync(1, text);
  `;
    // So that every tunnel has been probed once: a first look waits for that.
    for (let at = 0; at < 5; at++) await ask(places, { action: "peers", team: "acme" });
    const figures = await measureStartup(directory.path, Number(runs), [
      { name: "minimal program", argv: [await buildProgram(directory.path, "minimal", minimal)] },
      { name: "agent status", argv: [agent, "status", ...places.flags] },
      { name: "agent peers", argv: [agent, "peers", ...places.flags] },
    ]);
    const medianOf = (wanted: string) => figures.find(({ name }) => name === wanted)?.p50 ?? Number.NaN;
    for (const { name, p50 } of figures) figure(name, p50, { unit: "ms" });
    const ratio = medianOf("agent status") / medianOf("minimal program");
    const more = medianOf("agent peers") - medianOf("agent status");
    figure("agent status, of the minimal program", ratio, { digits: 2, most: 1.5 });
    figure(`agent peers with ${tunnels} tunnels, more than status`, more, { unit: "ms", most: 10 });
  } finally {
    daemon.signal("SIGTERM");
    await daemon.exited;
  }
}

await choose({ commands, status });
