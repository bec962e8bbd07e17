// What `agent admin restore --replace` does with providers of identities and verified domains.

import { expect, test } from "bun:test";
import { startHostileProvider } from "../../support/hostile-provider.ts";
import { json, must, place, populate, stop, useControlPlane } from "../../support/restoring.ts";

useControlPlane();

test("a provider or domain that was deleted after the backup does not come back, and settings stay restricted", async () => {
  await using provider = await startHostileProvider();
  await populate();
  const own = `${provider.issuer} --org acme --client-id agent`;
  await must(`oidc create Gone ${own} --users create`);
  await must(`oidc create Kept ${own} --users create --role boss=admin`);
  await must(`oidc create Installed ${provider.issuer} --client-id agent --users create`);
  for (const domain of ["gone.example", "kept.example"]) await must(`domain vouch acme ${domain}`);
  await must(`backup ${place.backup}`);
  await must("oidc delete Gone --org acme");
  await must("oidc delete Installed");
  await must("oidc update Kept --org acme --users link --role boss=member");
  await must("domain delete acme gone.example");
  await stop();
  await json(`restore ${place.backup} --replace`);
  expect(await json("oidc list --org acme")).toMatchObject({
    providers: [{ name: "Kept", creates_users: false, roles: [{ group: "boss", role: "member" }] }],
  });
  expect(await json("oidc list")).toEqual({ providers: [] });
  expect(await json("domain list acme")).toMatchObject({ domains: [{ domain: "kept.example" }] });
}, 120_000);
