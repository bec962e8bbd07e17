// `bun test/bench/console-pictures.ts`: draws the pages of the console for README.md and docs/console.md, from an organization
// of 300 machines that it makes, into docs/console/. Needs root, for Debian's chromium and pngquant.
// `bun test/bench/console-pictures.ts SIZE DIRECTORY`: the main pages of another organization (empty, few: 5 machines, many: 10,240;
// calm: the 300 on a day on which all is well) into this directory, to be looked at.

import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { chromium, type Page } from "playwright-core";
import { buildAgent, root } from "../support/agent.ts";
import { signIn } from "../support/console.ts";
import {
  askToJoin,
  idOf,
  liveScene,
  owner,
  password,
  reportPaths,
  seedScene,
} from "../support/console-scene.ts";
import { seedSize, sizes } from "../support/console-sizes.ts";
import { chromiumPath, installMissing } from "../support/debian.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { print, startServer } from "./measure.ts";

const pngquant = "/usr/bin/pngquant";
/** The first font that the console asks for. */
const inter = "/usr/share/fonts/opentype/inter/Inter-Regular.otf";
const maxBytes = 100_000;

/** Each picture: its file, its page, what is done there first, and its color scheme. */
const pictures: readonly [
  name: string,
  path: string,
  prepare: (page: Page) => Promise<void>,
  scheme?: "dark",
][] = [
  // Sums of paths may be some seconds old.
  ["overview", "", (page) => page.getByText("19 paths relayed").waitFor()],
  [
    "nodes",
    `nodes/?node=${idOf("web-5")}`,
    (page) => page.getByRole("heading", { name: "Paths" }).first().waitFor(),
  ],
  ["node", `nodes/${idOf("web-5")}/`, (page) => page.getByText("Does not reach").first().waitFor()],
  [
    "map",
    "map/",
    (page) => page.getByRole("group", { name: "Groups and the paths between them" }).waitFor(),
    "dark",
  ],
  ["access", "access/", addRule],
  ["activity", "activity/", (page) => page.locator(".log > li").first().waitFor()],
  ["past", "past/", askPast],
];

/** Asks the page of the past who can reach a database now, and by which rule. */
async function askPast(page: Page): Promise<void> {
  await page.getByLabel("Moment").fill(new Date().toISOString().slice(0, 19));
  await page.getByLabel("To node").fill("db-1");
  await page.getByRole("textbox", { name: "On" }).fill("tcp/5432");
  await page.getByRole("button", { name: "Look" }).click();
  await page.getByRole("heading", { name: "By these rules" }).waitFor();
}

/** A rule that is not saved yet, with what it would change. */
async function addRule(page: Page): Promise<void> {
  await page.getByRole("button", { name: "Add a rule" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("From", { exact: true }).fill("group:ci");
  await dialog.getByLabel("To", { exact: true }).fill("group:db");
  await dialog.getByRole("combobox", { name: "Protocol" }).selectOption("tcp");
  await dialog.getByLabel("Ports").fill("5432");
  await dialog.getByRole("button", { name: "Add to the draft" }).click();
  await page
    .getByText(/ gains? /)
    .first()
    .waitFor();
}

/** Pages of any organization, once nothing in them is loading. */
const mainPages: typeof pictures = ["", "machines/", "map/", "access/", "activity/"].map((path) => [
  path === "" ? "overview" : path.slice(0, -1),
  path,
  async (page) => {
    await page.getByRole("heading", { level: 1 }).waitFor();
    await page.locator("main [aria-busy=true]").first().waitFor({ state: "detached" });
    await page.waitForTimeout(1000);
  },
]);

const [wanted, directoryOfSize] = process.argv.slice(2);
const size = sizes.find((each) => each === wanted);
const day = wanted === "calm" ? wanted : "usual";
const isForDocuments = wanted === undefined;
if (!isForDocuments && ((size === undefined && day !== "calm") || directoryOfSize === undefined))
  throw new Error(`Give one of ${sizes.join(", ")}, calm, and a directory for its pictures.`);
const missing = installMissing([chromiumPath, pngquant, inter]);
if (missing !== undefined) throw new Error(missing);
buildAgent();
using directory = temporaryDirectory();
await (size === undefined ? seedScene(directory.path, day) : seedSize(directory.path, size));
await using server = await startServer(["--data-dir", directory.path, "--webhook-allow", "127.0.0.0/8"]);
const browser = await chromium.launch({
  executablePath: chromiumPath,
  args: ["--no-sandbox", "--disable-gpu"],
});
try {
  const page = await browser.newPage({ viewport: { width: 1280, height: 800 }, colorScheme: "light" });
  // It has no scroll bars, so their place would be empty.
  await page.addInitScript(
    'addEventListener("DOMContentLoaded", () => (document.documentElement.style.scrollbarGutter = "auto"))',
  );
  const url = (path: string) => `${server.url}/console/acme/${path}`;
  await page.goto(url(""));
  await signIn(page, owner, password);
  await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
  if (size === undefined) await liveScene(page, server.url, day);
  // Sums of paths may be some seconds old.
  if (day === "calm") {
    await page.getByText(/\d paths? relayed, none broken/).waitFor({ timeout: 60_000 });
    // What nodes reported of each other gave some of them news.
    await reportPaths(server.url, day);
    await page.getByText("all have the newest").waitFor({ timeout: 60_000 });
  }
  if (isForDocuments)
    for (const [name, groups] of [
      ["ci-71", ["ci"]],
      ["laptop-noor", ["staff"]],
    ] as const)
      await askToJoin(page, server.url, name, groups);
  const target = directoryOfSize ?? join(root, "docs/console");
  mkdirSync(target, { recursive: true });
  for (const [name, path, prepare, colorScheme = "light"] of isForDocuments ? pictures : mainPages) {
    await page.emulateMedia({ colorScheme });
    await page.goto(url(path));
    await prepare(page);
    // The count beside Overview comes a moment after the page.
    if (isForDocuments)
      await page
        .getByRole("link", { name: /^Overview/ })
        .filter({ hasText: /\d/ })
        .first()
        .waitFor();
    const file = join(target, `${name}.png`);
    await page.screenshot({ path: file });
    const argv = [pngquant, "--force", "--strip", "--speed=1", "--quality=50-90", "--output", file, file];
    const { exitCode, stderr } = Bun.spawnSync(argv);
    if (exitCode !== 0) throw new Error(`pngquant ${name}: ${stderr.toString()}`);
    const { size: bytes } = Bun.file(file);
    if (isForDocuments && bytes > maxBytes)
      throw new Error(`${file} has ${bytes} bytes, at most ${maxBytes} are wanted`);
    print(`${file} ${bytes} bytes`);
  }
} finally {
  await browser.close();
}
