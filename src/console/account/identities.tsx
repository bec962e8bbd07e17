// The user's identities at providers: linking and unlinking.

import { useState } from "preact/hooks";
import { apiPath, type SentOf } from "../../api/endpoint.ts";
import { identitiesApi, providerSignInApi } from "../../api/providers/sign-in.ts";
import { request } from "../contact/api.ts";
import { factors } from "../contact/me.ts";
import { linkAt, refusalOf, type Provider } from "../providers/providers.ts";
import { useResource } from "../contact/resource.ts";
import { query } from "../frame/router.ts";
import { Button } from "../ui/button.tsx";
import { Text, useAction } from "../ui/form.tsx";
import { Confirm, FormDialog } from "../ui/dialog.tsx";
import { Panel } from "../ui/page.tsx";
import { Failure, When } from "../ui/parts.tsx";
import { FactRow } from "../ui/setting-fields.tsx";

type Identity = SentOf<typeof identitiesApi.list>[number];

const path = apiPath(identitiesApi.list, {});

export function Identities() {
  const providers = useResource(apiPath(providerSignInApi.list, {}));
  const { data = [], error } = useResource(path);
  const [linking, setLinking] = useState<Provider>();
  const [unlinking, setUnlinking] = useState<Identity>();
  const choices = providers.data ?? [];
  if (error !== undefined) return <Failure error={error} />;
  if (choices.length === 0 && data.length === 0) return null;
  const refusal = refusalOf(query.value);
  return (
    <Panel title="Sign-in by a provider" isSettings={true}>
      {refusal === undefined ? null : (
        <p class="in is-bad" role="alert">
          {refusal}
        </p>
      )}
      {data.map((each) => (
        <FactRow
          key={each.id}
          title={
            <>
              <bdi>{each.provider}</bdi>: <bdi>{each.email ?? "without an address"}</bdi>
            </>
          }
          help={
            <>
              last used <When at={each.last_used_at} />
            </>
          }
        >
          <Button isSmall={true} onClick={() => setUnlinking(each)}>
            Unlink
          </Button>
        </FactRow>
      ))}
      {choices.map((each) => (
        <FactRow key={each.id} title={<bdi>{each.name}</bdi>} help="Signs you in here once it is linked.">
          <Button isSmall={true} onClick={() => setLinking(each)}>
            <span>
              Link an identity at <bdi>{each.name}</bdi>
            </span>
          </Button>
        </FactRow>
      ))}
      {linking === undefined ? null : <Link provider={linking} close={() => setLinking(undefined)} />}
      {unlinking === undefined ? null : (
        <Confirm
          title="Unlink this identity?"
          action="Unlink it"
          effect="It signs you in no longer, browsers that signed in with it are signed out, and you lose the roles and groups that it gave."
          close={() => setUnlinking(undefined)}
          sends={request(identitiesApi.unlink, { id: unlinking.id })}
          changes={path}
        />
      )}
    </Panel>
  );
}

/** Users without a second factor confirm the link with their password. */
function Link({ provider, close }: { provider: Provider; close(): void }) {
  const [password, setPassword] = useState("");
  const present = factors.value;
  const hasFactor = present !== undefined && (present.totp || present.passkeys > 0);
  const form = useAction(() => linkAt(provider.id, password === "" ? {} : { current_password: password }));
  return (
    <FormDialog
      title="Link an identity"
      close={close}
      action="Go on"
      form={form}
      shown={["current_password"]}
    >
      <p>
        You sign in at <bdi>{provider.name}</bdi> now. Afterwards that identity signs you in here.
      </p>
      {hasFactor ? null : (
        <Text
          label="Your password here"
          help="Leave it empty if you have none."
          errors={form.error?.fields["current_password"]}
          value={password}
          set={setPassword}
          control={{ type: "password", autocomplete: "current-password" }}
        />
      )}
    </FormDialog>
  );
}
