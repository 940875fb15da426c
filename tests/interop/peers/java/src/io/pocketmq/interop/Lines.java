package io.pocketmq.interop;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * Requests and answers as JSON lines.
 *
 * <p>A line in is {"id": n, "do": "command", ...arguments}. A line out is {"id": n, "ok": value}, {"id": n, "error":
 * {"class", "code", "message"}} or, unasked, {"event": "name", ...}. Commands run side by side; answers may overtake each
 * other. Everything that a library prints goes to standard error, so that standard output holds our lines only. The end of
 * standard input ends the process.
 */
final class Lines {
    interface Command {
        Object run(JsonObject arguments) throws Exception;
    }

    static final Gson GSON = new GsonBuilder().disableHtmlEscaping().serializeNulls().create();

    private static final PrintStream OUT =
            new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);

    private final Map<String, Command> commands = new HashMap<>();

    void on(String name, Command command) {
        commands.put(name, command);
    }

    static void event(JsonObject event) {
        write(event);
    }

    void serve() throws IOException {
        System.setOut(System.err);
        ExecutorService workers = Executors.newCachedThreadPool();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        JsonObject ready = new JsonObject();
        ready.addProperty("event", "ready");
        write(ready);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonObject request = JsonParser.parseString(line).getAsJsonObject();
            workers.execute(() -> answer(request));
        }
        Runtime.getRuntime().halt(0);
    }

    private void answer(JsonObject request) {
        JsonObject answer = new JsonObject();
        answer.add("id", request.get("id"));
        try {
            String name = request.get("do").getAsString();
            Command command = commands.get(name);
            if (command == null) {
                throw new IllegalArgumentException("the driver has no command " + name);
            }
            answer.add("ok", GSON.toJsonTree(command.run(request)));
        } catch (Throwable failure) {
            failure.printStackTrace();
            answer.add("error", error(failure));
        }
        write(answer);
    }

    /** class and message of the failure; code is the broker's response code where the chain of causes holds one. */
    static JsonObject error(Throwable failure) {
        JsonObject error = new JsonObject();
        error.addProperty("class", failure.getClass().getSimpleName());
        error.addProperty("message", String.valueOf(failure.getMessage()));
        error.add("code", null);
        for (Throwable at = failure; at != null; at = at.getCause()) {
            try {
                error.addProperty("code", (Integer) at.getClass().getMethod("getResponseCode").invoke(at));
                break;
            } catch (ReflectiveOperationException none) {
                continue;
            }
        }
        return error;
    }

    private static void write(JsonElement line) {
        synchronized (OUT) {
            OUT.println(GSON.toJson(line));
            OUT.flush();
        }
    }
}
