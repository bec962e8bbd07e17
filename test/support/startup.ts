// Measures the start of the executable relative to an empty program with the same build flags. They run in turns, so that
// load affects both.

import { join } from "node:path";
import { writeFileSync } from "node:fs";
import { compileFlags } from "../../build.ts";
import { agent, cleanEnvironment } from "./agent.ts";

export type Figures = {
  name: string;
  p10: number;
  p50: number;
  p90: number;
  /** Of the medians, to that of the empty program. */
  ratio: number;
  /** Median of the processor time, user and system, in ms. */
  cpu: number;
};

type Start = { wall: number; cpu: number };

/** Wall clock in ms. `directory` is for the empty program. */
export async function measureStartup(
  directory: string,
  runs: number,
  more: readonly { name: string; argv: string[] }[] = [],
): Promise<Figures[]> {
  const programs = [
    { name: "empty program", argv: [await buildProgram(directory, "empty", "process.exitCode = 0;\n")] },
    { name: "agent version --no-check", argv: [agent, "version", "--no-check"] },
    { name: "agent --help", argv: [agent, "--help"] },
    ...more,
  ];
  const starts = programs.map((): Start[] => []);
  for (let run = -3; run < runs; run++) {
    for (const [at, { argv }] of programs.entries()) {
      const start = startOnce(argv);
      if (run >= 0) starts[at]?.push(start);
    }
  }
  const walls = starts.map((each) => each.map(({ wall }) => wall));
  const base = quantile(walls[0] ?? [], 0.5);
  return programs.map(({ name }, at) => {
    const wall = walls[at] ?? [];
    const p50 = quantile(wall, 0.5);
    const cpu = quantile(
      (starts[at] ?? []).map((each) => each.cpu),
      0.5,
    );
    return { name, p10: quantile(wall, 0.1), p50, p90: quantile(wall, 0.9), ratio: p50 / base, cpu };
  });
}

function quantile(values: readonly number[], q: number): number {
  return values.toSorted((a, b) => a - b)[Math.floor(q * (values.length - 1))] ?? Number.NaN;
}

function startOnce(argv: string[]): Start {
  const from = performance.now();
  const { exitCode, resourceUsage } = Bun.spawnSync(argv, {
    env: cleanEnvironment(),
    stdout: "ignore",
    stderr: "ignore",
  });
  const wall = performance.now() - from;
  if (exitCode !== 0) throw new Error(`${argv.join(" ")}: exit ${exitCode}`);
  return { wall, cpu: Number(resourceUsage.cpuTime.total) / 1000 };
}

/** Compiles this source with our flags. Returns the path. */
export async function buildProgram(directory: string, name: string, text: string): Promise<string> {
  const source = join(directory, `${name}.ts`);
  const outfile = join(directory, name);
  writeFileSync(source, text);
  const result = await Bun.build({
    entrypoints: [source],
    compile: { ...compileFlags, outfile },
    format: "esm",
    bytecode: true,
    splitting: true,
    minify: true,
  });
  if (!result.success) throw new AggregateError(result.logs, `Cannot build ${name}`);
  return outfile;
}
