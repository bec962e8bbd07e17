// `bun test/bench/at-rest.ts [ROUNDS]`: an idle control plane beside a bare Bun.serve with bun:sqlite, compiled with the
// same flags: memory (bar: 1.4 times) and start to the first answer (bar: 2 times). Then a control plane with three nodes beside
// headscale with none, which is built from the Go module proxy in some minutes the first time: private and resident memory, start
// to the first answer (bar: 1.03 of headscale's) and the list of nodes (bar: 1.08 of it).

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { compileFlags } from "../../build.ts";
import { agent, buildAgent, cleanEnvironment, startControlPlane } from "../support/agent.ts";
import { freePort } from "../support/free-port.ts";
import { goProgram } from "../support/go-programs.ts";
import { makeOrganization, registerNode } from "../support/overlay.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { until } from "../support/until.ts";
import { figure, median, privateMb, residentKb, startProgram } from "./measure.ts";

async function buildFloor(outfile: string): Promise<string> {
  const result = await Bun.build({
    entrypoints: [join(import.meta.dir, "floor-rest.ts")],
    // A service goes back to the usual JIT policy.
    compile: { ...compileFlags, jitPolicy: 1, outfile },
    format: "esm",
    bytecode: true,
    splitting: true,
    minify: true,
  });
  if (!result.success) throw new AggregateError(result.logs, "Cannot build the floor");
  return outfile;
}

async function once(argv: readonly string[], path: string): Promise<{ ms: number; mb: number }> {
  const from = performance.now();
  await using program = await startProgram(argv);
  await (await fetch(`${program.url}${path}`)).text();
  const ms = performance.now() - from;
  await Bun.sleep(4000);
  return { ms, mb: residentKb(program.pid) / 1024 };
}

type Plane = { serve: readonly string[]; list: readonly string[]; url: string };

/** A new headscale in this directory, with what it demands at least. */
function makeHeadscale(directory: string): Plane {
  const [port, grpc] = [freePort(), freePort()];
  mkdirSync(directory);
  const derp = join(directory, "derp.yaml");
  const relay =
    "{name: 900a, regionid: 900, hostname: derp.example.net, ipv4: 127.0.0.1, stunport: -1, derpport: 443}";
  writeFileSync(
    derp,
    `regions:\n  900: {regionid: 900, regioncode: none, regionname: none, nodes: [${relay}]}\n`,
  );
  const config = join(directory, "config.yaml");
  writeFileSync(
    config,
    `server_url: http://127.0.0.1:${port}
listen_addr: 127.0.0.1:${port}
metrics_listen_addr: ""
grpc_listen_addr: 127.0.0.1:${grpc}
noise: {private_key_path: ${join(directory, "noise.key")}}
prefixes: {v4: 100.64.0.0/10, allocation: sequential}
derp: {server: {enabled: false}, urls: [], paths: [${derp}], auto_update_enabled: false}
disable_check_updates: true
database: {type: sqlite, sqlite: {path: ${join(directory, "db.sqlite")}, write_ahead_log: true}}
dns: {magic_dns: false, base_domain: example.net, override_local_dns: false}
unix_socket: ${join(directory, "headscale.sock")}
log: {level: error}
`,
  );
  const words = [goProgram("headscale"), "-c", config];
  return {
    serve: [...words, "serve"],
    list: [...words, "nodes", "list"],
    url: `http://127.0.0.1:${port}/health`,
  };
}

/** Ours with an organization of three nodes. */
async function makeOurs(directory: string): Promise<Plane> {
  const data = join(directory, "server");
  await using plane = await startControlPlane(data);
  const acme = await makeOrganization(plane);
  for (const name of ["one", "two", "three"])
    await registerNode(acme, join(directory, name), name, await acme.makeToken());
  const port = freePort();
  return {
    serve: [agent, "serve", "--listen", `127.0.0.1:${port}`, "--data-dir", data],
    list: [agent, "admin", "node", "list", acme.slug, "--data-dir", data],
    url: `http://127.0.0.1:${port}/healthz`,
  };
}

async function onceOf({ serve, list, url }: Plane) {
  const from = performance.now();
  const child = Bun.spawn([...serve], { env: cleanEnvironment(), stdout: "ignore", stderr: "ignore" });
  const isUp = async () => (await fetch(url).catch(() => undefined))?.ok === true;
  await until(isUp, { everyMs: 2, ms: 20_000 });
  const ms = performance.now() - from;
  await Bun.sleep(4000);
  const listed = Array.from({ length: 8 }, () => {
    const begun = performance.now();
    const { exitCode } = Bun.spawnSync([...list], { env: cleanEnvironment(), stdout: "ignore" });
    if (exitCode !== 0) throw new Error(`${list.join(" ")}: exit ${exitCode}`);
    return performance.now() - begun;
  });
  const [privately, resident] = [privateMb(child.pid), residentKb(child.pid) / 1024];
  child.kill("SIGTERM");
  await child.exited;
  return { ms, listMs: median(listed), privateMb: privately, residentMb: resident };
}

/** Bars: what the product promises beside 87 ms and 37 ms of headscale's, 90 ms and 40 ms. */
async function besideHeadscale(directory: string, rounds: number): Promise<void> {
  const [theirs, ours] = [makeHeadscale(join(directory, "headscale")), await makeOurs(directory)];
  await onceOf(theirs);
  const measured: Record<"theirs" | "ours", Awaited<ReturnType<typeof onceOf>>[]> = { theirs: [], ours: [] };
  for (let round = 0; round < rounds; round++) {
    measured.theirs.push(await onceOf(theirs));
    measured.ours.push(await onceOf(ours));
  }
  compare(measured.ours, measured.theirs, "of headscale's", [
    ["privateMb", "private memory", "MB", undefined],
    ["residentMb", "resident memory", "MB", undefined],
    ["ms", "first answer", "ms", 1.03],
    ["listMs", "list of nodes", "ms", 1.08],
  ]);
}

/** `figures`: which values, what they are, their unit, and how many times the floor's median at most. */
function compare<K extends string>(
  ours: readonly Record<K, number>[],
  floor: readonly Record<K, number>[],
  of: string,
  figures: readonly (readonly [key: K, what: string, unit: string, most: number | undefined])[],
): void {
  for (const [key, what, unit, most] of figures) {
    const [values, beside] = [ours, floor].map((runs) => runs.map((each) => each[key]));
    figure(what, values ?? [], { unit, floor: beside ?? [] });
    if (most === undefined) continue;
    figure(`${what}, ${of}`, median(values ?? []) / median(beside ?? []), { digits: 2, most });
  }
}

if (import.meta.main) {
  const rounds = Number(process.argv[2] ?? 5);
  buildAgent();
  using directory = temporaryDirectory();
  const floor = [await buildFloor(join(directory.path, "floor")), directory.path];
  const data = join(directory.path, "data");
  const server = [agent, "serve", "--json", "--listen", "127.0.0.1:0", "--data-dir", data];
  // The first start makes the tables.
  await once(server, "/healthz");
  const [bare, ours]: [{ ms: number; mb: number }[], { ms: number; mb: number }[]] = [[], []];
  for (let round = 0; round < rounds; round++) {
    bare.push(await once(floor, "/"));
    ours.push(await once(server, "/healthz"));
  }
  compare(ours, bare, "of the bare server", [
    ["mb", "memory", "MB", 1.4],
    ["ms", "first answer", "ms", 2],
  ]);
  await besideHeadscale(directory.path, rounds);
}
