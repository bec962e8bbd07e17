// The part of oidc-provider, which has no types of its own, that tests use.

declare module "oidc-provider" {
  import type { IncomingMessage, Server, ServerResponse } from "node:http";

  export type Context = {
    path: string;
    status: number;
    req: IncomingMessage;
    res: ServerResponse;
    oidc: { client: { clientId: string }; account: { accountId: string } };
  };

  export class Provider {
    constructor(issuer: string, configuration: object);
    Grant: new (of: { clientId: string; accountId: string }) => {
      addOIDCScope(scope: string): void;
      save(): Promise<string>;
    };
    use(middleware: (context: Context, next: () => Promise<void>) => Promise<void>): void;
    interactionFinished(req: IncomingMessage, res: ServerResponse, result: object): Promise<void>;
    listen(port: number, host: string, ready: () => void): Server;
  }
}
