// Lighthouse looks at the console, desktop preset, five times each page. It is not among the locked dependencies: npm installs
// it into a temporary directory.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { join } from "node:path";
import * as v from "valibot";
import { buildAgent } from "../support/agent.ts";
import { median, print, startServer, type Program } from "../bench/measure.ts";
import { signIn, startConsoleBrowser } from "../support/console.ts";
import { chromiumPath } from "../support/debian.ts";
import { owner, password, seedScene } from "../support/console-scene.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const lighthouse = "lighthouse@12.8.2";
const runs = 5;
/** On a busy machine Chromium loses a trace now and then. */
const attempts = 3;
const limitMs = 1_800_000;
const Report = v.object({
  categories: v.record(v.string(), v.object({ score: v.nullable(v.number()) })),
});

const cleanup = new AsyncDisposableStack();
const directory = cleanup.use(temporaryDirectory());
let server: Program;
/** Has the session cookie: arguments are in the list of processes, and in the message of a failure. */
const headersFile = join(directory.path, "headers.json");

beforeAll(async () => {
  buildAgent();
  const data = join(directory.path, "data");
  await seedScene(data);
  server = cleanup.use(await startServer(["--data-dir", data]));
  const browser = cleanup.use(await startConsoleBrowser());
  const { page, context } = await browser.open();
  await page.goto(`${server.url}/console/`);
  await signIn(page, owner, password);
  await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
  const cookie = (await context.cookies()).map(({ name, value }) => `${name}=${value}`).join("; ");
  await Bun.write(headersFile, JSON.stringify({ Cookie: cookie }), { mode: 0o600 });
  await run(["npm", "install", "--no-audit", "--no-fund", "--prefix", directory.path, lighthouse]);
}, limitMs);
afterAll(() => cleanup.disposeAsync());

async function run(argv: readonly string[]): Promise<void> {
  const env = { ...process.env, CHROME_PATH: chromiumPath };
  const child = Bun.spawn([...argv], { env, stdout: "ignore", stderr: "pipe" });
  const text = await new Response(child.stderr).text();
  if ((await child.exited) !== 0) throw new Error(`${argv.join(" ")}\n${text}`);
}

/** The scores of one run, of 100. */
async function scores(path: string, isSignedIn: boolean): Promise<Record<string, number>> {
  const output = join(directory.path, "report.json");
  const argv = [
    join(directory.path, "node_modules/.bin/lighthouse"),
    `${server.url}/console/${path}`,
    "--preset=desktop",
    "--quiet",
    "--output=json",
    `--output-path=${output}`,
    "--only-categories=performance,accessibility,best-practices",
    "--chrome-flags=--headless=new --no-sandbox --disable-gpu",
    ...(isSignedIn ? [`--extra-headers=${headersFile}`] : []),
  ];
  for (let at = 1; ; at++) {
    try {
      await run(argv);
      break;
    } catch (error) {
      if (at === attempts || !String(error).includes("Runtime error")) throw error;
    }
  }
  const { categories } = v.parse(Report, await Bun.file(output).json());
  return Object.fromEntries(
    Object.entries(categories).map(([name, { score }]) => [name, Math.round((score ?? 0) * 100)]),
  );
}

test.each([
  ["", false],
  ["acme/", true],
  ["acme/nodes/", true],
  ["acme/access/", true],
] as const)(
  "Lighthouse, median of five: /console/%s",
  async (path, isSignedIn) => {
    const all: Record<string, number>[] = [];
    for (let at = 0; at < runs; at++) all.push(await scores(path, isSignedIn));
    const of = (name: string) => median(all.map((each) => each[name] ?? 0));
    print(`/console/${path} ${JSON.stringify(all)}`);
    expect(of("performance")).toBeGreaterThanOrEqual(95);
    expect([of("accessibility"), of("best-practices")]).toEqual([100, 100]);
  },
  limitMs,
);
