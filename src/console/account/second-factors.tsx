// The user's second factors: authenticator app, passkeys and recovery codes. Their dialogs are in factor-dialogs.tsx.

import { useState } from "preact/hooks";
import { apiPath } from "../../api/endpoint.ts";
import { passkeysApi } from "../../api/factors/passkeys.ts";
import { factors, readMe } from "../contact/me.ts";
import { canUsePasskeys, isPasskeyHost } from "./passkeys.ts";
import { refresh, useResource } from "../contact/resource.ts";
import { Button } from "../ui/button.tsx";
import { Failure, Loading, State, When } from "../ui/parts.tsx";
import { Panel } from "../ui/page.tsx";
import { FactRow } from "../ui/setting-fields.tsx";
import { Questions, RecoveryCodes, type Asked, type Codes } from "./factor-dialogs.tsx";

const passkeysPath = apiPath(passkeysApi.list, {});

export function SecondFactors() {
  const [asked, setAsked] = useState<Asked>(undefined);
  const [codes, setCodes] = useState<Codes>();
  const present = factors.value;
  if (present === undefined) return null;
  const close = () => setAsked(undefined);
  /**
   * After a factor was added or removed. With new recovery codes, the factors are read only once the user has kept them: the page of
   * a required factor would close, and the codes with it.
   */
  const changed = async (fresh: Codes = []) => {
    if (fresh.length > 0) setCodes(fresh);
    close();
    await Promise.all([fresh.length > 0 ? undefined : readMe(), refresh(passkeysPath)]);
  };
  const isFirst = !present.totp && present.passkeys === 0;
  return (
    <>
      <Panel id="second-factor" title="Second factor" isSettings={true}>
        <FactRow
          title="Authenticator app"
          help={<>Beside the password, an app or a passkey proves that it is you.</>}
        >
          <span class="group">
            <State name={present.totp ? "online" : "away"} word={present.totp ? "set up" : "not set up"} />
            <Button isSmall={true} kind={isFirst ? "tint" : undefined} onClick={() => setAsked("app")}>
              {present.totp ? "Move to another phone" : "Set up an app"}
            </Button>
            {present.totp ? (
              <Button isSmall={true} kind="danger" onClick={() => setAsked("remove app")}>
                Remove the app
              </Button>
            ) : null}
          </span>
        </FactRow>
        {isFirst ? null : (
          <FactRow
            title="Recovery codes"
            help={
              <>
                {present.recovery_codes_left} of them are left. Each signs you in once, when the phone or the
                passkey is lost.
              </>
            }
          >
            <Button isSmall={true} onClick={() => setAsked("codes")}>
              Make new codes
            </Button>
          </FactRow>
        )}
      </Panel>
      <Passkeys ask={setAsked} />
      <Questions {...{ asked, isFirst, changed, setCodes, close }} />
      {codes === undefined ? null : (
        <RecoveryCodes
          codes={codes}
          close={() => {
            setCodes(undefined);
            void readMe();
          }}
        />
      )}
    </>
  );
}

function Passkeys({ ask }: { ask(asked: Asked): void }) {
  const { data, error } = useResource(passkeysPath);
  return (
    <Panel
      id="passkeys"
      title="Passkeys"
      isSettings={true}
      actions={
        canUsePasskeys ? (
          <Button isSmall={true} onClick={() => ask("passkey")}>
            Add a passkey
          </Button>
        ) : null
      }
    >
      <Failure error={error} />
      {data === undefined ? (
        <div class="in">
          <Loading rows={1} />
        </div>
      ) : null}
      {data?.length === 0 ? (
        <FactRow
          title="None"
          help="A passkey is a key in your device or password manager; it signs you in without a password."
        />
      ) : null}
      {data?.map((passkey) => (
        <FactRow
          key={passkey.id}
          title={<bdi>{passkey.name}</bdi>}
          help={
            passkey.is_usable ? (
              <>
                used <When at={passkey.last_used_at} />
              </>
            ) : (
              "made for another name of this control plane, so it cannot be used"
            )
          }
        >
          <Button isSmall={true} label={`Remove ${passkey.name}`} onClick={() => ask(passkey)}>
            Remove
          </Button>
        </FactRow>
      ))}
      {canUsePasskeys ? null : <p class="in quiet">{whyNoPasskeys()}</p>}
    </Panel>
  );
}

function whyNoPasskeys(): string {
  if (!isPasskeyHost)
    return "Passkeys need a host name. Open the console by the name of the control plane, or start it with one: --public-url https://vpn.example.org";
  if (!isSecureContext) return "This browser has no passkeys on this page: it needs HTTPS.";
  return "This browser cannot use passkeys here. Use a newer one: Chrome 129, Firefox 119, Safari 18.4.";
}
