// `agent up URL`: a machine joins without a key, confirmed by a user in a real browser, with a control plane that has a CA of
// its own and real engines.

import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { Database } from "bun:sqlite";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Page } from "playwright-core";
import * as v from "valibot";
import { runAgent } from "../support/agent.ts";
import { overflowOf, signIn, violationsIn } from "../support/console.ts";
import { chromiumPath, inCi, installMissing } from "../support/debian.ts";
import { asRoot, engineNamed } from "../support/engines.ts";
import { member, nebula, pings, startJoiningScene, type JoiningScene } from "../support/joining-scene.ts";
import { until } from "../support/until.ts";

setDefaultTimeout(120_000);
const missing = installMissing([chromiumPath, nebula, "/usr/sbin/ip", "/usr/bin/curl"]);
const withBrowser = missing === undefined || inCi ? test : test.skip;

asRoot("a machine without a key", () => {
  let scene: JoiningScene;
  /** That of the app. */
  const engine = engineNamed("sid");
  beforeAll(async () => {
    if (missing !== undefined) throw new Error(missing);
    scene = await startJoiningScene(["box", "phone"]);
  });
  afterAll(() => scene[Symbol.asyncDispose]());

  withBrowser("trusts no control plane with a CA of its own without the fingerprint", async () => {
    const etc = join(scene.directory, "none");
    const { status, stderr } = await runAgent(
      ["up", scene.url, "--foreground", "--config-root", etc, "--overlay-binary", nebula],
      { inside: scene.host("box").inside },
    );
    expect([status, stderr]).toEqual([6, expect.stringContaining("--ca-fingerprint")]);
    expect(existsSync(etc)).toBe(false);
  });

  withBrowser("leaves nothing behind when its wait is interrupted", async () => {
    const { waiting, end, etc } = scene.up(scene.host("box"), "gone", scene.here);
    await waiting();
    expect(await end("SIGINT")).not.toBe(0);
    expect(existsSync(etc) ? readdirSync(etc) : []).toEqual([]);
  });

  withBrowser("goes on by itself when a user has typed its four words, up to the ping", async () => {
    const { page, admin } = scene;
    const box = scene.host("box");
    const machine = scene.up(box, "box", scene.here);
    const { url, words } = await machine.waiting();
    expect(url).toStartWith(`${scene.url}/console/-/join/?request=`);
    await page.goto(url);
    await signIn(page, member);
    await page.getByText(box.address).waitFor();
    await page.getByText("None of your organizations lets you").waitFor();
    await admin("org update acme --self-enrollment members");
    await page.reload();
    const field = page.getByLabel("The four words that the machine shows");
    const button = page.getByRole("button", { name: "Let it join" });
    await field.fill("maple maple maple maple");
    expect(await violationsIn(page)).toEqual([]);
    await button.click();
    await page.getByText("4 more tries").waitFor();
    await field.fill("");
    await field.pressSequentially(` ${words.join(" ").toUpperCase()} `);
    await button.click();
    await page.getByText("goes on by itself").waitFor();
    expect(await violationsIn(page)).toEqual([]);
    await page.goto(`${scene.url}/console/acme/nodes/add/`);
    await page.getByRole("radio", { name: "My own" }).check();
    await page.getByText(`sudo agent up ${scene.url} --org acme`).waitFor();
    expect(await violationsIn(page)).toEqual([]);
    await pings(box);
    expect(machine.said()).toContain('{"state":"confirmed","org_slug":"acme"}\n');
    const nodes = JSON.stringify(await admin("node list acme"));
    expect(nodes).toMatch(/"name":"box".*"groups":\[\].*"owner_id":\d+/);
    await machine.end("SIGTERM");
    // By its files, without another confirmation.
    const again = scene.up(box, "box", scene.here);
    await pings(box);
    expect(again.said()).not.toContain("waiting");
  });

  withBrowser("is confirmed again by its user in the browser, without a lost ping", async () => {
    const { page, admin } = scene;
    await admin("org update acme --reauthenticate 8");
    // Two days pass.
    using database = new Database(join(scene.data, "control.db"));
    database.run("UPDATE organizations SET reauthenticate_from = reauthenticate_from - 172800000");
    database.run("UPDATE nodes SET registered_at = registered_at - 172800000");
    const ping = ["ping", "-q", "-i", "0.2", "-c", "25", "-W", "1", "10.77.0.1"];
    const pinging = Bun.spawn(scene.host("box").inside(ping), { stdout: "pipe" });
    await page.goto(`${scene.url}/console/acme/`);
    await page.getByText("Nodes of yours to confirm").waitFor();
    expect(await violationsIn(page)).toEqual([]);
    await page.getByRole("link", { name: "box" }).click();
    await page.getByText("Its user confirms it by").waitFor();
    expect(await violationsIn(page)).toEqual([]);
    await page.goBack();
    await page.getByRole("button", { name: "It is still mine" }).click();
    await page.getByText("Nodes of yours to confirm").waitFor({ state: "detached" });
    expect(await new Response(pinging.stdout).text()).toContain("25 packets transmitted, 25 received");
  });

  withBrowser(
    "makes the site file of a phone: its key is in no request, and an engine runs with it",
    async () => {
      const { page, host, directory, url, admin } = scene;
      const sent: string[] = [];
      page
        .context()
        .on("request", (request) =>
          sent.push(`${request.url()} ${JSON.stringify(request.headers())} ${request.postData() ?? ""}`),
        );
      await page.goto(`${url}/console/acme/nodes/add/`);
      await page.getByRole("radio", { name: "Phone" }).check();
      await page.getByRole("link", { name: "Add a phone" }).click();
      await page.getByLabel("Name").fill("iPhone ");
      await page.getByLabel("System").selectOption("ios");
      expect(await violationsIn(page)).toEqual([]);
      const first = await makeFile(page);
      expect(await violationsIn(page)).toEqual([]);
      const stored = "JSON.stringify([localStorage, sessionStorage, document.body.innerText])";
      for (const text of [...sent, String(await page.evaluate(stored))])
        expect(formsOf(first.pki.key).filter((form) => text.includes(form))).toEqual([]);
      expect(sent.filter((text) => text.includes("NEBULA X25519 PUBLIC KEY"))).toHaveLength(1);

      const phone = host("phone");
      const at = (name: string) => join(directory, name);
      for (const part of ["ca", "cert"] as const) writeFileSync(at(part), first.pki[part]);
      phone.run([engine.nebulaCert, "verify", "-ca", at("ca"), "-crt", at("cert")]);
      expect(phone.run([engine.nebulaCert, "print", "-path", at("cert")])).toContain("iphone");
      writeFileSync(at("site.yml"), first.text);
      const running = phone.spawn([engine.nebula, "-config", at("site.yml")]);
      await pings(phone);

      await page.getByRole("button", { name: "Done" }).click();
      // Whoever may approve it does so on the page, which alone has the key.
      await admin(`member update acme ${member} --role admin`);
      await admin("org update acme --approval all");
      await page.reload();
      await page.getByRole("button", { name: "Import again" }).click();
      await page.getByRole("button", { name: "Make the file" }).click();
      await page.getByRole("button", { name: "Approve it" }).click();
      await page.getByRole("button", { name: "Done" }).click();
      await page.getByRole("dialog").getByRole("button", { name: "Cancel" }).click();
      const second = await downloadFile(page);
      await page.getByRole("button", { name: "Done" }).click();
      await admin("org update acme --approval none");
      expect(formsOf(second.pki.key).some((form) => sent.join().includes(form))).toBe(false);
      // The other machines refuse the former certificate.
      const ping = phone.inside(["ping", "-c", "1", "-W", "1", "10.77.0.1"]);
      await until(() => Bun.spawnSync(ping).exitCode !== 0);
      running.kill("SIGTERM");
      await running.exited;
      writeFileSync(at("site.yml"), second.text);
      phone.spawn([engine.nebula, "-config", at("site.yml")]);
      await pings(phone);
    },
  );

  withBrowser("keeps the key of a phone while its administrator approves it on other pages", async () => {
    const { page, url, admin } = scene;
    await page.setViewportSize({ width: 360, height: 740 });
    await page.goto(`${url}/console/acme/phones/`);
    await admin("org update acme --approval all");
    await page.getByLabel("Name").fill("pixel");
    await page.getByLabel("Groups").fill("staff");
    await page.getByRole("button", { name: "Make the file" }).click();
    const key = page.getByRole("status").locator("code");
    const shown = await key.innerText();
    expect(await overflowOf(page)).toBe(0);
    expect(await violationsIn(page)).toEqual([]);
    await page.getByRole("link", { name: "Nodes" }).first().click();
    await page.getByRole("heading", { name: "Nodes", level: 1 }).waitFor();
    await page.goBack();
    expect(await key.innerText()).toBe(shown);
    const question = page.waitForEvent("dialog");
    // The browser asks; staying keeps the key.
    void page.evaluate("location.reload()");
    await (await question).dismiss();
    await page.keyboard.press("Control+k");
    await page.getByRole("dialog").getByRole("combobox").fill("approve");
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "Nodes", level: 1 }).waitFor();
    await page.getByText(shown).waitFor();
    await page.getByRole("button", { name: "Approve pixel" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Approve pixel" }).click();
    await page.getByText("The file of pixel is ready").waitFor();
    await page.goBack();
    expect(await page.getByText("It is in no group").count()).toBe(0);
    const { pki } = await downloadFile(page);
    expect(pki.cert).toContain("NEBULA CERTIFICATE");
    await page.getByRole("button", { name: "Done" }).click();
    await page.getByRole("heading", { name: "Your phones" }).waitFor();
    // Its own page leads back to the imports.
    await page.getByRole("link", { name: "pixel" }).click();
    await page.getByRole("heading", { name: "pixel", level: 1 }).waitFor();
    await page.getByText("staff").first().waitFor();
    await page.getByRole("link", { name: "Import it again" }).click();
    await page.getByRole("heading", { name: "Your phones" }).waitFor();
    // A file is no longer offered once the phone was changed.
    await admin("org update acme --approval none");
    await page.getByRole("listitem").filter({ hasText: "pixel" }).getByRole("button").click();
    await page.getByRole("button", { name: "Make the file" }).click();
    await page.getByRole("button", { name: "Download the file" }).waitFor();
    await admin("node update acme pixel --add-group late");
    await page.getByText("It is out of date").waitFor();
    expect(await page.getByRole("button", { name: "Download the file" }).count()).toBe(0);
    await page.getByRole("button", { name: "Import again" }).click();
    await page.getByRole("heading", { name: "Import pixel again" }).waitFor();
    await page.getByRole("button", { name: "Cancel" }).click();
    await admin("org update acme --approval all");
  });

  withBrowser("shows a request of a phone whose page is gone as such", async () => {
    const { page, url, admin, data } = scene;
    await page.getByLabel("Name").fill("lost");
    await page.getByRole("button", { name: "Make the file" }).click();
    await page.getByText("waits for an administrator's approval").waitFor();
    await page.getByRole("button", { name: "Cancel" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Give it up" }).click();
    using database = new Database(join(data, "control.db"));
    database.run("UPDATE registration_requests SET asked_at = asked_at - 240000");
    await page.goto(`${url}/console/acme/nodes/waiting/`);
    await page.getByText("Its page is closed or asleep").waitFor();
    expect(await overflowOf(page)).toBe(0);
    expect(await violationsIn(page)).toEqual([]);
    await admin("org update acme --approval none");
    await page.setViewportSize({ width: 1280, height: 720 });
  });

  withBrowser("shows a hostile name of a phone as text, and says where a browser lacks the key", async () => {
    const { page, url } = scene;
    const hostile = `<img src=x onerror="document.title='hit'">`;
    await page.addInitScript(`const usual = fetch;
      window.fetch = async (...request) => {
        const answer = await usual(...request);
        if (!JSON.stringify(request).includes("owner=me")) return answer;
        const text = (await answer.text()).replaceAll('"iphone"', ${JSON.stringify(JSON.stringify(hostile))});
        return new Response(text, answer);
      };`);
    await page.goto(`${url}/console/acme/phones/`);
    const item = page.getByRole("listitem").filter({ hasText: hostile });
    await item.getByRole("button", { name: "Import again" }).click();
    await page.getByRole("heading", { name: hostile }).waitFor();
    expect(await page.locator("img").count()).toBe(0);
    expect(await page.title()).not.toContain("hit");
    await page.addInitScript("crypto.subtle.generateKey = async () => { throw new Error() }");
    await page.reload();
    await page.getByText("This browser cannot make the key").waitFor();
    expect(await page.getByRole("button", { name: "Make the file" }).count()).toBe(0);
    expect(await violationsIn(page)).toEqual([]);
  });
});

const Site = v.object({ pki: v.object({ ca: v.string(), cert: v.string(), key: v.string() }) });

/** Makes the file that the page offers, and downloads it. */
async function makeFile(page: Page) {
  await page.getByRole("button", { name: "Make the file" }).click();
  return downloadFile(page);
}

async function downloadFile(page: Page) {
  const offered = page.waitForEvent("download");
  await page.getByRole("button", { name: "Download the file" }).click();
  const text = readFileSync(await (await offered).path(), "utf8");
  await page.getByText("This page has the key no more").waitFor();
  return { text, ...v.parse(Site, Bun.YAML.parse(text)) };
}

/** A private key as it could leave a browser. */
function formsOf(pem: string): string[] {
  const base64 = /^[\w+/=]{44}$/m.exec(pem)?.[0] ?? "";
  const bytes = Buffer.from(base64, "base64");
  expect(bytes).toHaveLength(32);
  const hex = bytes.toString("hex");
  // Within the base64 of something longer, at any of its three places.
  const within = [0, 1, 2].map((gap) =>
    Buffer.concat([Buffer.alloc(gap), bytes])
      .toString("base64")
      .slice(4, 40),
  );
  const pemWithin = [0, 1, 2].map((gap) =>
    Buffer.from(" ".repeat(gap) + base64)
      .toString("base64")
      .slice(4, 52),
  );
  const all = [base64, ...within, ...pemWithin];
  return [
    "PRIVATE KEY",
    hex,
    hex.toUpperCase(),
    [...bytes].join(),
    ...all,
    ...all.map((each) => each.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "")),
    ...all.map(encodeURIComponent),
  ];
}
