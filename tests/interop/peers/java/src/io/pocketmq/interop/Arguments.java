package io.pocketmq.interop;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.lang.reflect.Method;
import java.util.Map;

/** Optional arguments of a request, and bean setters by name. */
final class Arguments {
    private Arguments() {}

    static String text(JsonObject in, String key, String otherwise) {
        return has(in, key) ? in.get(key).getAsString() : otherwise;
    }

    static int number(JsonObject in, String key, int otherwise) {
        return has(in, key) ? in.get(key).getAsInt() : otherwise;
    }

    static long big(JsonObject in, String key, long otherwise) {
        return has(in, key) ? in.get(key).getAsLong() : otherwise;
    }

    static boolean flag(JsonObject in, String key) {
        return has(in, key) && in.get(key).getAsBoolean();
    }

    static boolean has(JsonObject in, String key) {
        return in.has(key) && !in.get(key).isJsonNull();
    }

    /** {"sendMsgTimeout": 500} calls bean.setSendMsgTimeout(500); enums go by name. */
    static void set(Object bean, JsonObject properties) throws ReflectiveOperationException {
        if (properties == null) {
            return;
        }
        for (Map.Entry<String, JsonElement> entry : properties.entrySet()) {
            String name = entry.getKey();
            String setter = "set" + Character.toUpperCase(name.charAt(0)) + name.substring(1);
            boolean done = false;
            for (Method method : bean.getClass().getMethods()) {
                if (method.getName().equals(setter) && method.getParameterCount() == 1) {
                    Object value = value(entry.getValue(), method.getParameterTypes()[0]);
                    if (value != null) {
                        method.invoke(bean, value);
                        done = true;
                        break;
                    }
                }
            }
            if (!done) {
                throw new IllegalArgumentException(bean.getClass().getSimpleName() + " has no property " + name);
            }
        }
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static Object value(JsonElement json, Class<?> type) {
        if (type.isEnum()) {
            return Enum.valueOf((Class<Enum>) type, json.getAsString());
        }
        if (type == String.class) {
            return json.getAsString();
        }
        if (type == int.class || type == Integer.class) {
            return json.getAsInt();
        }
        if (type == long.class || type == Long.class) {
            return json.getAsLong();
        }
        if (type == boolean.class || type == Boolean.class) {
            return json.getAsBoolean();
        }
        return null;
    }
}
