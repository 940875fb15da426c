package io.pocketmq.interop;

import com.google.gson.JsonObject;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** mqadmin as a server: {"do": "mqadmin", "args": ["topicList", "-n", ...]} answers what the program prints. */
public final class Mqadmin {
    private Mqadmin() {}

    public static void main(String[] arguments) throws Exception {
        Lines lines = new Lines();
        lines.on("mqadmin", in -> Nudge.during(() -> run(in)));
        lines.serve();
    }

    /**
     * One at a time: the commands print to the process's streams and read process-wide properties. The list of commands is
     * made anew each time, as in a process of its own: some commands keep a client that serves once.
     */
    private static synchronized Object run(JsonObject in) throws ReflectiveOperationException {
        for (Field field : MQAdminStartup.class.getDeclaredFields()) {
            if (List.class.isAssignableFrom(field.getType())) {
                field.setAccessible(true);
                ((List<?>) field.get(null)).clear();
            }
        }
        String[] args = Lines.GSON.fromJson(in.get("args"), String[].class);
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        ByteArrayOutputStream errors = new ByteArrayOutputStream();
        PrintStream out = System.out;
        PrintStream err = System.err;
        System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(errors, true, StandardCharsets.UTF_8));
        try {
            MQAdminStartup.main0(args, null);
        } finally {
            System.setOut(out);
            System.setErr(err);
            System.clearProperty("rocketmq.namesrv.addr");
        }
        Map<String, Object> result = new LinkedHashMap<>();
        result.put("out", printed.toString(StandardCharsets.UTF_8));
        result.put("err", errors.toString(StandardCharsets.UTF_8));
        return result;
    }
}
