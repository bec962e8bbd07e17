// `bun test/bench/console-views.ts [NODES] [ROUNDS]`: when a page of the console can be read, in a real Chromium, with an
// organization of 1,000 nodes: the first view with an empty cache, and each page after a click in the navigation, first with
// its file still on the control plane, then again. Beside them, in the same turns, a floor: what the first view shows as a
// static page of another server, with a script as large as the console's that does nothing. A page can be read once its title
// is there and nothing in it is loading; the time is taken in the frame after. Where the machine has other work, the processor
// time of the page's main thread says more: it is given beside.

import { chromium, type Browser, type BrowserContext, type Page } from "playwright-core";
import { buildAgent } from "../support/agent.ts";
import { signIn } from "../support/console.ts";
import { chromiumPath } from "../support/debian.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { median, print, spread, startServer } from "./measure.ts";
import { seeAllNodes, seedWithOwner } from "./owner.ts";
import { password, slug } from "./seed.ts";

const firstBarMs = 300;
const nextBarMs = 100;
const limitMs = 20_000;
const hoverMs = 100;
/** Titles in the navigation, and what the page waits for beside its title. */
const pages = [
  ["Overview", "main p"],
  ["Nodes", "[role=row] a"],
  ["Map", "main svg.draw, main .mx, main .empty"],
  ["Access", ".rule .say, main .empty"],
  ["Activity", ".log > li, main .empty"],
  ["Certificates", "main h2"],
  ["Members", "[role=row]"],
  ["Keys and tokens", "main .panel"],
  ["Alarms", "main .panel"],
  ["Settings", "main input, main select"],
] as const;

/** Processor time of the page's main thread so far, ms. */
async function processorOf(page: Page): Promise<() => Promise<number>> {
  const session = await page.context().newCDPSession(page);
  await session.send("Performance.enable", { timeDomain: "threadTicks" });
  return async () => {
    const { metrics } = await session.send("Performance.getMetrics");
    return 1000 * (metrics.find(({ name }) => name === "TaskDuration")?.value ?? Number.NaN);
  };
}

type Wanted = { title: string; content: string; click: boolean };

/** Milliseconds since the click in the navigation, or since the page was asked for. */
async function readable(page: Page, { title, content, click }: Wanted): Promise<number> {
  if (click) {
    // A hand rests on a link before it clicks; the console uses that time.
    await page.getByRole("navigation").getByRole("link", { name: title }).first().hover();
    await page.waitForTimeout(hoverMs);
  }
  const taken = await page.evaluate<number>(`new Promise((resolve, reject) => {
    const title = ${JSON.stringify(title)};
    const link = [...document.querySelectorAll("nav a")].find((each) => each.textContent.trim().startsWith(title));
    const from = ${click} ? performance.now() : 0;
    if (${click}) link.click();
    const isThere = () =>
      document.querySelector("h1")?.textContent === title &&
      document.querySelector("main [aria-busy=true]") === null &&
      document.querySelector(${JSON.stringify(content)}) !== null;
    const look = () => {
      if (isThere()) requestAnimationFrame(() => resolve(performance.now() - from));
      else if (performance.now() - from > ${limitMs}) reject(new Error(title + " was not there"));
      else requestAnimationFrame(look);
    };
    look();
  })`);
  return taken;
}

/** An empty profile with the session. */
async function profile(browser: Browser, cookies: Awaited<ReturnType<BrowserContext["cookies"]>>) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
  await context.addCookies(cookies);
  return { context, page: await context.newPage() };
}

/** What the first view shows, and as much script as it loads, without anything to do. */
async function startFloor(page: Page): Promise<Disposable & { url: string }> {
  const { markup, sheet, scripts } = await page.evaluate<{ markup: string; sheet: string; scripts: number }>(
    `(async () => ({
      markup: document.body.innerHTML.replaceAll(/<script.*?<\\/script>/gs, ""),
      sheet: await (await fetch(document.querySelector("link[rel=stylesheet]").href)).text(),
      scripts: performance.getEntriesByType("resource")
        .filter(({ name }) => name.endsWith(".js"))
        .reduce((sum, { decodedBodySize }) => sum + decodedBodySize, 0),
    }))()`,
  );
  const html = `<!doctype html><html lang="en"><head><meta charset="utf-8"><link rel="stylesheet" href="/style.css">
<script type="module" src="/script.js"></script><title>floor</title></head><body>${markup}</body></html>`;
  const pack = (text: string, type: string) => () =>
    new Response(Bun.gzipSync(text), {
      headers: { "Content-Type": `${type}; charset=utf-8`, "Content-Encoding": "gzip" },
    });
  // Random digits, so that it is as large on the way as minified script is, about a third.
  const bulk = Array.from({ length: scripts / 8 }, () =>
    Math.random().toString(36).slice(2, 5).padEnd(8),
  ).join("");
  const server = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    development: false,
    routes: {
      "/": pack(html, "text/html"),
      "/style.css": pack(sheet, "text/css"),
      "/script.js": pack(`/*${bulk}*/`, "text/javascript"),
    },
  });
  print(`floor: ${html.length} bytes of page, ${bulk.length} of script`);
  return { url: server.url.href, [Symbol.dispose]: () => void server.stop(true) };
}

if (import.meta.main) {
  const nodes = Number(process.argv[2] ?? 1000);
  const rounds = Number(process.argv[3] ?? 9);
  buildAgent();
  using directory = temporaryDirectory();
  const data = directory.path;
  const { owner } = await seedWithOwner(data, nodes);
  await seeAllNodes(data);
  await using server = await startServer(["--data-dir", data]);
  const browser = await chromium.launch({
    executablePath: chromiumPath,
    args: ["--no-sandbox", "--disable-gpu"],
  });
  try {
    const start = await browser.newContext({ viewport: { width: 1280, height: 800 } });
    const signing = await start.newPage();
    const first = { title: "Overview", content: "main p", click: false };
    await signing.goto(`${server.url}/console/${slug}/`);
    await signIn(signing, owner, password);
    await readable(signing, first);
    const cookies = await start.cookies();
    // With the plot, which is loaded last.
    await signing.waitForTimeout(2000);
    using floor = await startFloor(signing);
    await start.close();
    const floors: number[] = [];
    const views: number[] = [];
    const viewsMs: number[] = [];
    const clicks = new Map<string, { took: number[]; worked: number[] }>();
    for (let round = 0; round < rounds; round++) {
      const plain = await profile(browser, []);
      await plain.page.goto(floor.url, { waitUntil: "commit" });
      floors.push(await readable(plain.page, first));
      await plain.context.close();
      const { context, page } = await profile(browser, cookies);
      await page.goto(`${server.url}/console/${slug}/`, { waitUntil: "commit" });
      const worked = await processorOf(page);
      views.push(await readable(page, first));
      viewsMs.push(await worked());
      for (const turn of ["first", "again"]) {
        for (const [title, content] of [...pages.slice(1), ...pages.slice(0, 1)]) {
          const known = clicks.get(`${title}, ${turn}`) ?? { took: [], worked: [] };
          const before = await worked();
          known.took.push(await readable(page, { title, content, click: true }));
          known.worked.push((await worked()) - before);
          clicks.set(`${title}, ${turn}`, known);
        }
      }
      await context.close();
    }
    const share = median(views.map((each, at) => each / (floors[at] ?? Number.NaN)));
    print(`floor, static page    ${spread(floors)} ms`);
    print(
      `first view, cold      ${spread(views)} ms, ${share.toFixed(1)} of the floor, bar ${firstBarMs}; processor ${spread(viewsMs)} ms`,
    );
    for (const [name, { took, worked }] of clicks) {
      const verdict = median(took) < nextBarMs ? "" : `, MISSED: bar ${nextBarMs}`;
      print(`${name.padEnd(22)}${spread(took)} ms; processor ${spread(worked)} ms${verdict}`);
    }
  } finally {
    await browser.close();
  }
}
