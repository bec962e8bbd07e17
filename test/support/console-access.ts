// The page Access in a browser, for its end-to-end tests: an organization with the nodes web-1 and db-1, each in its group.

import type { Locator, Page } from "playwright-core";
import { owner, signIn, startConsole, type Console } from "./console.ts";

const policy = `tests:
  - deny: {from: group:db, to: group:web, protocol: tcp, port: 22}
`;

export async function openAccess(scene: Console, on: Page, email: string) {
  await on.goto(`${scene.url()}/console/acme/access/`);
  await signIn(on, email);
  await on.getByRole("heading", { name: "Access", level: 1 }).waitFor();
}

/** With the owner signed in on the page. */
export async function startAccess(): Promise<Console> {
  const scene = await startConsole();
  for (const [name, group] of [
    ["web-1", "web"],
    ["db-1", "db"],
  ] as const) {
    const { token } = await scene.adminJson(["token", "create", "acme", "--group", group]);
    await scene.register(name, String(token));
  }
  await scene.admin(["policy", "apply", "acme", "-"], policy);
  await openAccess(scene, scene.page, owner);
  return scene;
}

/** What a user does on the page. */
export function useAccess(page: () => Page) {
  const saving = () => page().getByRole("button", { name: "Save the rules" });
  /** While edits are saved the bar stays, and its button has another name. */
  const unedited = () => page().getByRole("region", { name: "Draft" }).waitFor({ state: "detached" });
  return {
    saving,
    unedited,
    row: (text: string | RegExp) =>
      page()
        .getByRole("list", { name: /^(Rules|Tests)$/ })
        .getByRole("listitem")
        .filter({ hasText: text }),
    /** An action of the menu of a row. */
    async act(row: Locator, action: string) {
      // Its name begins with "Rule 7: ", "New rule: " or "Test: ".
      await row.locator("summary").click();
      await row.getByRole("button", { name: action, exact: true }).click();
    },
    async add(from: string, to: string, ports: string, description = "") {
      await page().getByRole("button", { name: "Add a rule" }).click();
      const dialog = page().getByRole("dialog");
      await dialog.getByLabel("From").fill(from);
      await dialog.getByLabel("To", { exact: true }).fill(to);
      await dialog.getByLabel("Ports").fill(ports);
      await dialog.getByLabel("Description").fill(description);
      await dialog.getByRole("button", { name: "Add to the draft" }).click();
    },
    async discard() {
      await page().getByRole("button", { name: "Discard", exact: true }).click();
      await page().getByRole("button", { name: "Discard them" }).click();
      await unedited();
    },
  };
}
