// For all admin commands: opening the control plane's data, and the plan of a --dry-run.

import { AppError } from "../../errors.ts";
import type { Step } from "../../plan.ts";
import type { Admin } from "../../server/admin.ts";
import type { OrganizationAccess } from "../../server/http/route.ts";
import type { Context } from "../command.ts";
import { readDataOptions } from "../server-flags.ts";
import { readNamedFile, type Flags } from "../values.ts";

/** Runs `work` on the data that the flags name, whether `serve` runs or not. `begins`: may create the data. */
export async function onData<T>(
  { values, system, settings }: Context,
  work: (admin: Admin) => Promise<T>,
  { begins = false } = {},
): Promise<T> {
  const { withAdmin } = await import("../../server/admin.ts");
  const { requireData } = await import("../../server/store/data-directory.ts");
  const options = await readDataOptions(values, system);
  if (!begins || settings.dryRun) requireData(options);
  return withAdmin(options, system, work);
}

/** The same for one organization. */
export async function onOrganization<T>(
  context: Context,
  slug: string,
  work: (admin: Admin, org: Pick<OrganizationAccess, "id" | "slug">) => Promise<T>,
): Promise<T> {
  const { organizationBySlug } = await import("../../server/policy/organizations.ts");
  return onData(context, async (admin) => work(admin, await organizationBySlug(admin.db, slug)));
}

/** The names that are no groups yet. Commands create a missing group, so a typing error creates one, too. */
export async function missingGroups(
  { db }: Admin,
  org: Pick<OrganizationAccess, "id" | "slug">,
  names: readonly string[],
): Promise<string[]> {
  const { listGroups } = await import("../../server/policy/groups.ts");
  const known = new Set((await listGroups(db, org)).map(({ name }) => name));
  return [...new Set(names)].filter((name) => !known.has(name));
}

/** Nothing with --json: the result holds them. */
export function sayNewGroups({ json, say }: Context["output"], names: readonly string[]): void {
  if (json || names.length === 0) return;
  say(`New ${names.length === 1 ? "group" : "groups"}: ${names.join(", ")}`);
}

/**
 * With --dry-run: prints what would change (the database, and `more`), and returns true. `org`: throws if there is no such
 * organization. `begins`: the command may create the data.
 */
export async function onlyPlanned(
  context: Context,
  {
    org,
    begins = false,
    more = [],
  }: { org?: string | undefined; begins?: boolean; more?: readonly Step[] } = {},
): Promise<boolean> {
  const { settings, values, system, output } = context;
  if (!settings.dryRun) return false;
  const { planData, requireData } = await import("../../server/store/data-directory.ts");
  const options = await readDataOptions(values, system);
  if (!begins) requireData(options);
  if (org !== undefined) await onOrganization(context, org, async () => {});
  output.plan([...planData(options, system), ...more]);
  return true;
}

/** The word ID of a command line. */
export function readId(id: string): number {
  if (!/^\d{1,15}$/.test(id)) throw new AppError("usage", `ID must be a number, not "${id}"`);
  return Number(id);
}

export const overridesFlag: Flags = {
  "config-overrides": {
    type: "string",
    valueHint: "FILE",
    description:
      "Replace all overrides by the JSON object of this file (- is standard input); {} removes them",
  },
};

/** The object of --config-overrides, not validated yet; undefined without the flag. */
export async function readOverrides({ values, system }: Context): Promise<unknown> {
  const file = values.text("config-overrides");
  if (file === undefined) return undefined;
  const text = await readNamedFile("config-overrides", file, system);
  try {
    return JSON.parse(text);
  } catch (error) {
    const name = file === "-" ? "standard input" : file;
    throw new AppError("usage", `--config-overrides: ${name} is not JSON`, {
      cause: error,
      hint: 'Give an object such as {} or {"tun":{"mtu":1400}}.',
    });
  }
}
