// `bun test/bench/console.ts [NODES]`: the console in a real Chromium with an organization of 10,000 nodes: when the list of
// machines can be used, the longest task of the page while it is scrolled, searched and gets 100 events a second, and what
// its script keeps in memory. Beside it, the floor: a page of the same browser that only reads and parses the same list.

import { chromium, type Page } from "playwright-core";
import { openData } from "../../src/server/store/data-directory.ts";
import { realSystem } from "../../src/system.ts";
import { buildAgent, runAgent } from "../support/agent.ts";
import { chromiumPath } from "../support/console.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { print, startServer } from "./measure.ts";
import { password, seed, slug } from "./seed.ts";

const eventsPerS = 100;
const seconds = 10;

/**
 * What the page did since the last call: tasks over 50 ms, and the processor time of its main thread. On a machine that has
 * other work, tasks take longer than they work; the processor time does not.
 */
async function makeWork(page: Page): Promise<() => Promise<string>> {
  const session = await page.context().newCDPSession(page);
  await session.send("Performance.enable", { timeDomain: "threadTicks" });
  let before = 0;
  return async () => {
    await page.waitForTimeout(200);
    const tasks = JSON.parse(String(await page.evaluate("JSON.stringify(tasks.splice(0))"))) as number[];
    const { metrics } = await session.send("Performance.getMetrics");
    const now = metrics.find(({ name }) => name === "ThreadTime")?.value ?? 0;
    const spent = Math.round((now - before) * 1000);
    before = now;
    const longest = Math.round(Math.max(0, ...tasks));
    return `${tasks.length} tasks over 50 ms, longest ${longest} ms; processor ${spent} ms`;
  };
}

async function heapMb(page: Page): Promise<string> {
  const session = await page.context().newCDPSession(page);
  await session.send("HeapProfiler.collectGarbage");
  const { usedSize } = await session.send("Runtime.getHeapUsage");
  return `${(usedSize / 1_048_576).toFixed(1)} MB`;
}

/** Renames nodes as an administrator, all the time. Returns the end of it. */
function makeEvents(url: string, admin: string, nodes: number): () => Promise<number> {
  const over = new AbortController();
  let made = 0;
  const one = async (id: number) => {
    const answer = await fetch(`${url}/api/org/${slug}/nodes/${id}/`, {
      method: "PATCH",
      headers: { Authorization: `Bearer ${admin}`, "Content-Type": "application/json" },
      body: JSON.stringify({ name: `moved-${id}-${made}` }),
    });
    if (answer.ok) made++;
  };
  const run = (async () => {
    for (let at = 1; !over.signal.aborted; at++) {
      const wait = Bun.sleep(1000 / eventsPerS);
      void one((at % nodes) + 1);
      await wait;
    }
  })();
  return async () => {
    over.abort();
    await run;
    return made;
  };
}

if (import.meta.main) {
  const nodes = Number(process.argv[2] ?? 10_000);
  buildAgent();
  using directory = temporaryDirectory();
  const data = directory.path;
  const { admin, people } = await seed({ dataDirectory: data }, nodes, { people: 1 });
  const [email = ""] = people;
  const member = await runAgent([
    "admin",
    "member",
    "create",
    slug,
    email,
    "--role",
    "owner",
    "--data-dir",
    data,
  ]);
  if (member.status !== 0) throw new Error(member.stderr);
  // What nodes that are online do: seen now, so that the list is not all away.
  const { db } = await openData({ dataDirectory: data }, "server", realSystem());
  await db.write((tx) => tx.run("UPDATE sightings SET last_checkin_at = $1", [Date.now()]));
  await db.close();
  await using server = await startServer(["--data-dir", data]);
  const browser = await chromium.launch({
    executablePath: chromiumPath,
    args: ["--no-sandbox", "--disable-gpu"],
  });
  try {
    const page = await browser.newPage({ viewport: { width: 1280, height: 800 } });
    await page.addInitScript(
      "window.tasks = []; new PerformanceObserver((list) => { for (const each of list.getEntries()) tasks.push(each.duration); }).observe({ entryTypes: ['longtask'] });",
    );
    await page.goto(`${server.url}/console/${slug}/activity/`);
    await page.getByLabel("E-mail").fill(email);
    await page.getByLabel("Password").fill(password);
    await page.getByRole("button", { name: "Sign in", exact: true }).click();
    await page.getByRole("heading", { level: 1, name: "Activity" }).waitFor();
    await page.waitForTimeout(500);
    const floor = await page.evaluate(`(async () => {
      const from = performance.now();
      await Promise.all(Array.from({ length: ${Math.ceil(nodes / 1000)} }, (_, at) =>
        fetch("/api/org/${slug}/nodes/?page_size=1000&page=" + (at + 1)).then((answer) => answer.json())));
      return performance.now() - from;
    })()`);
    print(`floor: read and parse ${nodes} nodes    ${Math.round(Number(floor))} ms`);
    const work = await makeWork(page);
    await work();
    const from = performance.now();
    await page.getByRole("link", { name: "Machines" }).click();
    await page.getByRole("row").nth(5).waitFor();
    print(`first rows after                      ${Math.round(performance.now() - from)} ms, bar 500`);
    await page.getByText(`${nodes} of ${nodes}`).waitFor({ timeout: 60_000 });
    print(`all rows after                        ${Math.round(performance.now() - from)} ms`);
    print(`loading                               ${await work()}`);
    for (let at = 0; at < 40; at++) {
      await page.mouse.wheel(0, 3000);
      await page.waitForTimeout(50);
    }
    print(`scrolling                             ${await work()}, bar 0`);
    await page.getByRole("searchbox").pressSequentially("node-99", { delay: 60 });
    print(`searching                             ${await work()}, bar 0`);
    await page.getByRole("searchbox").fill("");
    await work();
    const end = makeEvents(server.url, admin, nodes);
    for (let at = 0; at < seconds * 10; at++) {
      await page.mouse.wheel(0, at % 20 < 10 ? 800 : -800);
      await page.waitForTimeout(100);
    }
    const made = await end();
    print(`${(made / seconds).toFixed(0)} events a second, scrolling        ${await work()}, bar 0`);
    print(`memory of the page's script           ${await heapMb(page)}, bar 40`);
  } finally {
    await browser.close();
    await server.stop();
  }
}
