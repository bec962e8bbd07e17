// `bun test/bench/console.ts [NODES]`: the console in a real Chromium with an organization of 10,000 nodes: when the list of
// machines can be used, the longest task of the page while it is scrolled, searched and gets 100 events a second, and what
// its script keeps in memory. Beside it, floors of the same browser in the same run: reading and parsing the list, and a page
// that replaces as many rows of plain text while it is scrolled. A task takes longer than it works where the machine has
// other work: the longest is given as elapsed time and as processor time, which is what the bar is about.

import { chromium, type Browser, type Page } from "playwright-core";
import * as v from "valibot";
import { buildAgent } from "../support/agent.ts";
import { chromiumPath } from "../support/debian.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { print, startServer } from "./measure.ts";
import { seeAllNodes, seedWithOwner } from "./owner.ts";
import { password, slug } from "./seed.ts";

const eventsPerS = 100;
const seconds = 10;

const Trace = v.object({
  traceEvents: v.array(
    v.looseObject({
      name: v.string(),
      pid: v.number(),
      tid: v.number(),
      dur: v.optional(v.number()),
      tdur: v.optional(v.number()),
      args: v.looseObject({ name: v.optional(v.unknown()) }),
    }),
  ),
});

/** The tasks of the page's main thread during the work: the longest, and those over 50 ms of processor. */
async function traced(browser: Browser, page: Page, work: () => Promise<void>): Promise<string> {
  await browser.startTracing(page, { categories: ["toplevel"] });
  await work();
  await page.waitForTimeout(200);
  const { traceEvents } = v.parse(Trace, JSON.parse((await browser.stopTracing()).toString()));
  const mains = new Set(
    traceEvents
      .filter(({ name, args }) => name === "thread_name" && args.name === "CrRendererMain")
      .map(({ pid, tid }) => `${pid} ${tid}`),
  );
  const tasks = traceEvents.filter(
    ({ name, pid, tid }) => name.endsWith("RunTask") && mains.has(`${pid} ${tid}`),
  );
  const longest = (of: "dur" | "tdur") =>
    Math.round(Math.max(0, ...tasks.map((task) => task[of] ?? 0)) / 1000);
  const over = tasks.filter(({ tdur = 0 }) => tdur > 50_000).length;
  const spent = Math.round(tasks.reduce((sum, { tdur = 0 }) => sum + tdur, 0) / 1000);
  return `longest task ${longest("tdur")} ms of processor, ${longest("dur")} elapsed; over 50 ms: ${over}; in all ${spent} ms`;
}

const steps = 40;
async function scroll(page: Page): Promise<void> {
  await page.mouse.move(640, 400);
  for (let at = 0; at < steps; at++) {
    await page.mouse.wheel(0, 3000);
    await page.waitForTimeout(50);
  }
}

/** As many rows of as many cells, without links, states, times, or a framework. */
const floorPage = `<div id="body" style="position:relative;height:360000px"></div><script>
  addEventListener("scroll", () => {
    const first = Math.max(0, Math.floor(scrollY / 36) - 6);
    const row = (at) => {
      const row = document.createElement("div");
      row.style.cssText = "position:absolute;height:36px;width:100%;display:grid;contain:strict;grid-template-columns:repeat(6,minmax(0,1fr));top:" + at * 36 + "px";
      for (let cell = 0; cell < 6; cell++) row.append(Object.assign(document.createElement("div"), { textContent: "cell " + at + " " + cell }));
      return row;
    };
    document.getElementById("body").replaceChildren(...Array.from({ length: 34 }, (_, at) => row(first + at)));
  });
</script>`;

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
  const { admin, owner } = await seedWithOwner(data, nodes);
  // As the list shows nodes that work.
  await seeAllNodes(data);
  await using server = await startServer(["--data-dir", data]);
  const browser = await chromium.launch({
    executablePath: chromiumPath,
    args: ["--no-sandbox", "--disable-gpu"],
  });
  try {
    const page = await browser.newPage({ viewport: { width: 1280, height: 800 } });
    await page.setContent(floorPage);
    print(`floor: scrolling plain rows           ${await traced(browser, page, () => scroll(page))}`);
    await page.goto(`${server.url}/console/${slug}/activity/`);
    await page.getByLabel("E-mail").fill(owner);
    await page.getByLabel("Password").fill(password);
    await page.getByRole("button", { name: "Continue", exact: true }).click();
    await page.getByRole("heading", { level: 1, name: "Activity" }).waitFor();
    await page.waitForTimeout(500);
    const floor = await page.evaluate(`(async () => {
      const from = performance.now();
      await Promise.all(Array.from({ length: ${Math.ceil(nodes / 1000)} }, (_, at) =>
        fetch("/api/org/${slug}/nodes/?page_size=1000&page=" + (at + 1)).then((answer) => answer.json())));
      return performance.now() - from;
    })()`);
    print(`floor: read and parse ${nodes} nodes    ${Math.round(Number(floor))} ms`);
    const from = performance.now();
    const loading = await traced(browser, page, async () => {
      await page.getByRole("link", { name: "Nodes", exact: true }).first().click();
      await page.getByRole("row").nth(5).waitFor();
      print(`first rows after                      ${Math.round(performance.now() - from)} ms, bar 500`);
      await page.getByText(`${nodes} of ${nodes}`).waitFor({ timeout: 60_000 });
      print(`all rows after                        ${Math.round(performance.now() - from)} ms`);
    });
    print(`loading                               ${loading}`);
    print(`scrolling                             ${await traced(browser, page, () => scroll(page))}`);
    const search = async () => {
      await page.getByRole("searchbox").pressSequentially("node-99", { delay: 60 });
      await page.getByRole("searchbox").fill("");
    };
    print(`searching                             ${await traced(browser, page, search)}`);
    let made = 0;
    const busy = await traced(browser, page, async () => {
      await page.mouse.move(640, 400);
      const end = makeEvents(server.url, admin, nodes);
      for (let at = 0; at < seconds * 10; at++) {
        await page.mouse.wheel(0, at % 20 < 10 ? 800 : -800);
        await page.waitForTimeout(100);
      }
      made = await end();
    });
    print(`${(made / seconds).toFixed(0)} events a second, scrolling        ${busy}`);
    print(`memory of the page's script           ${await heapMb(page)}, bar 40`);
  } finally {
    await browser.close();
    await server.stop();
  }
}
