// Used by the admin commands that work only on the machine of the control plane, on its data: backup, restore, keys, export,
// import, verification. All others ask the API (api.ts).

import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import type { Step } from "../../base/plan/plan.ts";
import type { Admin } from "../../server/admin.ts";
import type { OrganizationAccess } from "../../server/http/route.ts";
import type { Context } from "../command.ts";
import { readDataOptions } from "../server/server-flags.ts";
import { chooseTarget, nameOfLocal, requireLocalData, sayTarget, type LocalTarget } from "./target.ts";

/**
 * Runs `work` on the data that the flags name, whether `serve` runs or not. `mayCreateData`: the data may be created. `writes`: the
 * work changes the data, so the target is named first.
 */
export async function onData<T>(
  context: Context,
  work: (admin: Admin) => Promise<T>,
  { mayCreateData = false, writes = false } = {},
): Promise<T> {
  const { system, settings } = context;
  const { withAdmin } = await import("../../server/admin.ts");
  const target = await requireLocalTarget(context, { mayCreateData });
  // A plan must not create the data that it reads.
  if (!mayCreateData || settings.dryRun) await requireLocalData(context, target.options);
  if ((mayCreateData || writes) && !settings.dryRun) sayTarget(target, context);
  return withAdmin(target.options, system, work);
}

/** `onData` for one organization. */
export async function onOrganization<T>(
  context: Context,
  slug: string,
  work: (admin: Admin, org: Pick<OrganizationAccess, "id" | "slug">) => Promise<T>,
): Promise<T> {
  const { organizationBySlug } = await import("../../server/organizations/organizations.ts");
  return onData(context, async (admin) => work(admin, await organizationBySlug(admin.db, slug)));
}

/**
 * Throws if a flag names a control plane on another machine, or if a profile does and there is no data here. With data here,
 * the profile's control plane is probably this one.
 */
export async function requireLocalTarget(
  context: Context,
  { mayCreateData = false } = {},
): Promise<LocalTarget> {
  const { values, system } = context;
  // Refuse these flags even if there is no such profile, or no user is signed in with it.
  const named = values.text("api-base") ?? values.text("profile");
  if (named !== undefined && !values.on("local")) throw onlyLocal(named);
  const target = await chooseTarget(context);
  if (target.kind === "local") return target;
  const { hasData } = await import("../../server/store/data-directory.ts");
  const options = await readDataOptions(values, system);
  if (mayCreateData || !hasData(options)) throw onlyLocal(target.name);
  // The user is signed in elsewhere and gets the local data all the same: sayTarget says so.
  return { kind: "local", options, name: nameOfLocal(options), isSurprising: true };
}

function onlyLocal(target: string): AppError {
  return new AppError("usage", "This command works only on the machine of the control plane, on its data", {
    hint: `The target is ${target}. Sign in on that machine, and run the command there. For data on this machine, add --local. See \`${brand.executable} whoami\`.`,
  });
}

/**
 * With --dry-run: prints what would change (the database, and `more`), and returns true. `mayCreateData`: the command may create
 * the data.
 */
export async function onlyPlanned(
  context: Context,
  { mayCreateData = false, more = [] }: { mayCreateData?: boolean; more?: readonly Step[] } = {},
): Promise<boolean> {
  const { settings, system, output } = context;
  if (!settings.dryRun) return false;
  const { planData } = await import("../../server/store/data-directory.ts");
  const { options } = await requireLocalTarget(context, { mayCreateData });
  if (!mayCreateData) await requireLocalData(context, options);
  output.plan([...planData(options, system), ...more]);
  return true;
}
