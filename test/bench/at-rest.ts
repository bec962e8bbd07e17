// `bun test/bench/at-rest.ts [ROUNDS]`: an idle control plane beside a bare Bun.serve with bun:sqlite, compiled with the
// same flags: memory (bar: 1.4 times) and start to the first answer (bar: 2 times).

import { join } from "node:path";
import { compileFlags } from "../../build.ts";
import { agent, buildAgent } from "../support/agent.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { figure, median, residentKb, startProgram } from "./measure.ts";

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
  for (const [key, what, unit, most] of [
    ["mb", "memory", "MB", 1.4],
    ["ms", "first answer", "ms", 2],
  ] as const) {
    const [floor, values] = [bare, ours].map((runs) => runs.map((each) => each[key]));
    figure(what, values ?? [], { unit, floor: floor ?? [] });
    figure(`${what}, of the bare server`, median(values ?? []) / median(floor ?? []), { digits: 2, most });
  }
}
