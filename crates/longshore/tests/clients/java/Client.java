import io.fabric8.kubernetes.api.model.ConfigMap;
import io.fabric8.kubernetes.api.model.ConfigMapBuilder;
import io.fabric8.kubernetes.api.model.ConfigMapList;
import io.fabric8.kubernetes.api.model.ListOptionsBuilder;
import io.fabric8.kubernetes.api.model.PodBuilder;
import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.KubernetesClientException;
import io.fabric8.kubernetes.client.Watch;
import io.fabric8.kubernetes.client.Watcher;
import io.fabric8.kubernetes.client.WatcherException;
import io.fabric8.kubernetes.client.dsl.ExecWatch;
import io.fabric8.kubernetes.client.dsl.MixedOperation;
import io.fabric8.kubernetes.client.dsl.NonDeletingOperation;
import io.fabric8.kubernetes.client.dsl.NonNamespaceOperation;
import io.fabric8.kubernetes.client.dsl.PodResource;
import io.fabric8.kubernetes.client.dsl.Resource;
import io.fabric8.kubernetes.client.dsl.base.PatchContext;
import io.fabric8.kubernetes.client.dsl.base.PatchType;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** The script of fabric8: each step is checked, and told on a line of its own. Its last line counts them. */
public final class Client {
  private static final long PATIENCE_S = 60;
  private static final Map<String, String> LABELS = Map.of("script", "yes");

  private record Event(Watcher.Action action, ConfigMap object) {}

  private final KubernetesClient client;
  private final String namespace;
  private final BlockingQueue<Event> events = new LinkedBlockingQueue<>();
  private int steps;

  private Client(KubernetesClient client, String namespace) {
    this.client = client;
    this.namespace = namespace;
  }

  /** The kubeconfig is the first argument, the namespace the second. */
  public static void main(String[] arguments) throws Exception {
    Config config = Config.fromKubeconfig(new File(arguments[0]));
    try (KubernetesClient client = new KubernetesClientBuilder().withConfig(config).build()) {
      new Client(client, arguments[1]).run();
    } catch (Throwable failure) {
      failure.printStackTrace();
      System.exit(1);
    }
  }

  private void run() throws Exception {
    String http = client.getHttpClient().getClass().getName();
    check(http.contains("vertx"), "expected the default HTTP client, found " + http);
    creates();
    lists();
    String version = maps().withLabels(LABELS).list().getMetadata().getResourceVersion();
    Watch watch = watches(version);
    watchesOverARestart();
    patches();
    applies();
    executes();
    deletes();
    watch.close();
    System.out.println("fabric8: " + steps + " steps");
  }

  private NonNamespaceOperation<ConfigMap, ConfigMapList, Resource<ConfigMap>> maps() {
    MixedOperation<ConfigMap, ConfigMapList, Resource<ConfigMap>> all = client.configMaps();
    return all.inNamespace(namespace);
  }

  private ConfigMap map(String name, Map<String, String> data) {
    return new ConfigMapBuilder()
        .withNewMetadata().withName(name).withNamespace(namespace).withLabels(LABELS).endMetadata()
        .withData(data)
        .build();
  }

  private void creates() {
    for (String name : List.of("a", "b")) {
      ConfigMap created = client.resource(map(name, Map.of("value", "1"))).create();
      check(created.getMetadata().getUid() != null, "expected a uid, found " + created);
    }
    refused(409, () -> client.resource(map("a", Map.of())).create());
    done("create");
  }

  private void lists() {
    List<String> names = new ArrayList<>();
    String more = null;
    do {
      ConfigMapList page = maps().withLabels(LABELS)
          .list(new ListOptionsBuilder().withLimit(1L).withContinue(more).build());
      check(page.getItems().size() == 1, "expected one item a page, found " + page);
      names.add(page.getItems().get(0).getMetadata().getName());
      more = page.getMetadata().getContinue();
    } while (more != null && !more.isEmpty());
    check(names.equals(List.of("a", "b")), "expected a and b, found " + names);
    done("list");
  }

  private Watch watches(String version) throws InterruptedException {
    Watch watch = maps().withLabels(LABELS).watch(
        new ListOptionsBuilder().withResourceVersion(version).build(),
        new Watcher<ConfigMap>() {
          @Override
          public void eventReceived(Action action, ConfigMap object) {
            events.add(new Event(action, object));
          }

          @Override
          public void onClose(WatcherException cause) {
            cause.printStackTrace();
            System.exit(1);
          }
        });
    client.resource(map("c", Map.of("value", "1"))).create();
    expect(Watcher.Action.ADDED, "c");
    done("watch");
    return watch;
  }

  /** The test restarts the server, and makes an object afterwards. */
  private void watchesOverARestart() throws InterruptedException {
    ConfigMap mark = map("progress", Map.of("phase", "watching"));
    mark.getMetadata().setLabels(null);
    client.resource(mark).create();
    expect(Watcher.Action.ADDED, "after-restart");
    done("watch over a restart");
  }

  private void patches() throws InterruptedException {
    patch(PatchType.STRATEGIC_MERGE, "{\"data\": {\"strategic\": \"1\"}}");
    patch(PatchType.JSON_MERGE, "{\"data\": {\"merge\": \"1\", \"strategic\": null}}");
    patch(PatchType.JSON, "[{\"op\": \"add\", \"path\": \"/data/json\", \"value\": \"1\"}]");
    maps().withName("a").edit(found -> new ConfigMapBuilder(found).addToData("edited", "1").build());
    ConfigMap seen = expect(Watcher.Action.MODIFIED, "a");
    Map<String, String> expected = Map.of("value", "1", "merge", "1", "json", "1", "edited", "1");
    check(seen.getData().equals(expected), "expected " + expected + ", found " + seen.getData());
    String failed = "[{\"op\": \"test\", \"path\": \"/data/json\", \"value\": \"2\"}]";
    refused(422, () -> maps().withName("a").patch(PatchContext.of(PatchType.JSON), failed));
    seen.getMetadata().setResourceVersion("1");
    refused(409, () -> client.resource(seen).lockResourceVersion("1").update());
    done("patch");
  }

  private void patch(PatchType type, String body) throws InterruptedException {
    ConfigMap patched = maps().withName("a").patch(PatchContext.of(type), body);
    String version = expect(Watcher.Action.MODIFIED, "a").getMetadata().getResourceVersion();
    check(version.equals(patched.getMetadata().getResourceVersion()), "found another version, " + version);
  }

  /** Without the help of the server, whose own way is refused. */
  private void applies() throws InterruptedException {
    client.resource(map("applied", Map.of("kept", "1", "removed", "1"))).createOr(NonDeletingOperation::update);
    expect(Watcher.Action.ADDED, "applied");
    client.resource(map("applied", Map.of("kept", "2"))).createOr(NonDeletingOperation::update);
    ConfigMap seen = expect(Watcher.Action.MODIFIED, "applied");
    check(seen.getData().equals(Map.of("kept", "2")), "found " + seen.getData());
    refused(415, () -> client.resource(map("applied", Map.of("kept", "3"))).serverSideApply());
    done("apply");
  }

  private void executes() throws Exception {
    client.resource(new PodBuilder()
        .withNewMetadata().withName("target").withNamespace(namespace).endMetadata()
        .withNewSpec()
        .addNewContainer().withName("main").withImage("target:1")
        .withCommand("sh", "-c", "echo begun; exec sleep 1000").endContainer()
        .endSpec()
        .build()).create();
    PodResource pod = client.pods().inNamespace(namespace).withName("target");
    pod.waitUntilReady(PATIENCE_S, TimeUnit.SECONDS);
    ByteArrayOutputStream stdout = new ByteArrayOutputStream();
    ByteArrayOutputStream stderr = new ByteArrayOutputStream();
    try (ExecWatch command = pod.redirectingInput().writingOutput(stdout).writingError(stderr)
        .exec("sh", "-c", "read line; echo $line; echo err >&2; exit 7")) {
      command.getInput().write("given\n".getBytes(StandardCharsets.UTF_8));
      command.getInput().flush();
      Integer code = command.exitCode().get(PATIENCE_S, TimeUnit.SECONDS);
      check(Objects.equals(code, 7), "expected exit code 7, found " + code);
    }
    String said = stdout + "|" + stderr;
    check(said.equals("given\n|err\n"), "found " + said);
    check(pod.getLog().equals("begun\n"), "found the log " + pod.getLog());
    done("exec");
  }

  private void deletes() throws InterruptedException {
    maps().withName("c").delete();
    expect(Watcher.Action.DELETED, "c");
    check(maps().withName("c").get() == null, "expected nothing, found c");
    maps().withLabels(LABELS).delete();
    List<ConfigMap> left = maps().withLabels(LABELS).list().getItems();
    check(left.isEmpty(), "expected nothing, found " + left);
    PodResource pod = client.pods().inNamespace(namespace).withName("target");
    pod.withGracePeriod(1).delete();
    pod.waitUntilCondition(Objects::isNull, PATIENCE_S, TimeUnit.SECONDS);
    done("delete");
  }

  /** Each event has to be the next one: none is left out, and none comes twice. */
  private ConfigMap expect(Watcher.Action action, String name) throws InterruptedException {
    Event event = events.poll(2 * PATIENCE_S, TimeUnit.SECONDS);
    String wanted = action + " of " + name;
    check(event != null, "expected " + wanted + ", found no event");
    check(event.action() == action && event.object().getMetadata().getName().equals(name),
        "expected " + wanted + ", found " + event);
    return event.object();
  }

  private static void refused(int code, Runnable request) {
    try {
      request.run();
    } catch (KubernetesClientException refusal) {
      check(refusal.getCode() == code, "expected " + code + ", found " + refusal);
      return;
    }
    throw new AssertionError("expected " + code + ", found no refusal");
  }

  private static void check(boolean holds, String otherwise) {
    if (!holds) {
      throw new AssertionError(otherwise);
    }
  }

  /** Tells that a step was as it had to be. */
  private void done(String step) {
    steps++;
    System.out.println("ok: " + step);
  }
}
