// A headless Chromium for the console, controlled by Playwright. Hosts other than this machine cannot be reached, and
// every complaint of a page fails the test that ends with `expectQuiet`.

import { expect } from "bun:test";
import { chromium, type Browser, type BrowserContext, type Page } from "playwright-core";
import { installMissing } from "./debian.ts";

export const chromiumPath = "/usr/bin/chromium";

export type ConsoleBrowser = AsyncDisposable & {
  browser: Browser;
  /** A new browser profile with one page. */
  open(options?: Parameters<Browser["newContext"]>[0]): Promise<{ context: BrowserContext; page: Page }>;
  /** Fails if a page threw, logged an error, was refused something by its policy, or asked another host. */
  expectQuiet(): void;
};

/** Refusals are part of a test: the browser logs each as an error of its own. */
const expected = /Failed to load resource: the server responded with a status of 4\d\d/;

export async function startConsoleBrowser(): Promise<ConsoleBrowser> {
  const missing = installMissing([chromiumPath]);
  if (missing !== undefined) throw new Error(missing);
  const browser = await chromium.launch({
    executablePath: chromiumPath,
    args: [
      "--no-sandbox",
      "--disable-gpu",
      "--disable-quic",
      "--disable-background-networking",
      "--disable-sync",
    ],
  });
  const complaints: string[] = [];
  return {
    browser,
    async open(options) {
      const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
      context.setDefaultTimeout(15_000);
      const page = await context.newPage();
      context.on("console", (message) => {
        if (message.type() === "error" && !expected.test(message.text())) complaints.push(message.text());
      });
      context.on("weberror", (error) => complaints.push(String(error.error())));
      context.on("request", (request) => {
        const { hostname, protocol } = new URL(request.url());
        if (/^https?:$/.test(protocol) && hostname !== "127.0.0.1" && hostname !== "localhost")
          complaints.push(`asked ${request.url()}`);
      });
      return { context, page };
    },
    expectQuiet() {
      expect(complaints).toEqual([]);
    },
    [Symbol.asyncDispose]: () => browser.close(),
  };
}
