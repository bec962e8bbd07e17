// Measures the start of the executable relative to an empty program with the same build flags. They run in turns, so that
// load affects both.

import { join } from "node:path";
import { writeFileSync } from "node:fs";
import { agent, cleanEnvironment } from "./agent.ts";

export type Figures = { name: string; p10: number; p50: number; p90: number; ratio: number };

/** Wall clock in ms; `ratio` is that of the medians. `directory` is for the empty program. */
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
  const times = programs.map((): number[] => []);
  for (let run = -3; run < runs; run++) {
    for (const [at, { argv }] of programs.entries()) {
      const ms = startOnce(argv);
      if (run >= 0) times[at]?.push(ms);
    }
  }
  const sorted = times.map((each) => each.sort((a, b) => a - b));
  const quantile = (values: number[], q: number) => values[Math.floor(q * (values.length - 1))] ?? Number.NaN;
  const base = quantile(sorted[0] ?? [], 0.5);
  return programs.map(({ name }, at) => {
    const values = sorted[at] ?? [];
    const p50 = quantile(values, 0.5);
    return { name, p10: quantile(values, 0.1), p50, p90: quantile(values, 0.9), ratio: p50 / base };
  });
}

function startOnce(argv: string[]): number {
  const from = performance.now();
  const { exitCode } = Bun.spawnSync(argv, { env: cleanEnvironment(), stdout: "ignore", stderr: "ignore" });
  const ms = performance.now() - from;
  if (exitCode !== 0) throw new Error(`${argv.join(" ")}: exit ${exitCode}`);
  return ms;
}

/** Compiles this source with our flags. Returns the path. */
export async function buildProgram(directory: string, name: string, text: string): Promise<string> {
  const source = join(directory, `${name}.ts`);
  const outfile = join(directory, name);
  writeFileSync(source, text);
  const result = await Bun.build({
    entrypoints: [source],
    compile: { outfile, autoloadDotenv: false, autoloadBunfig: false },
    format: "esm",
    bytecode: true,
    splitting: true,
    minify: true,
  });
  if (!result.success) throw new AggregateError(result.logs, `Cannot build ${name}`);
  return outfile;
}
